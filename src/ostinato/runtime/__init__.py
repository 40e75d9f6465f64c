"""Memory and work on a device: buffers, libraries, the in-order queue, submissions."""
