"""The lane pass: LLVM code of one thread to LLVM code of a simdgroup's 32 lanes.

Text in, text out: `code` reads a function, `flow` finds its loops and where threads part, `shapes` finds what is the
same for all lanes or a known distance apart, `records` finds reads of fields next to each other. `blocks` and
`instructions` write the code for all lanes with `vectors`, `memory`, `turning` and `exchanges`, all of them through the
`Emitter` of `emission`, and `lanes` does all of it for the kernels of a module.
"""
