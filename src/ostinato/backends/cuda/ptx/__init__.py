"""Passes over the PTX of programs with simdgroup matrices, before the driver makes machine code of it.

Text in, text out. `joining` calls the others and joins products. `tile_loads` and `lane_reads` fetch matrices from
threadgroup memory by rows, `wide_loads` reads columns 16 bytes at a time, and `narrowing` takes floats that were 16-bit
numbers as these. `mma_lines` has the lines that the shim makes. What is known of a register is said by `alignment`,
`assignments` and `lane_values`. `registers` gives new ones, and `accesses` addresses.
"""
