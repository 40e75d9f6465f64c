"""The command encoder, and the checks a command passes before it is recorded."""
