"""The host compiler and what is built with it: C++ for the CPU, the hazard engine, launchers."""
