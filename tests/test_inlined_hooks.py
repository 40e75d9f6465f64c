"""What is changed in LLVM assembly so that clang inlines the hooks that look for bounds."""

from __future__ import annotations

from ostinato.backends.cpu.clang_code import with_inlined_hooks

CODE = """define void @k(ptr %x, ptr %y) #3 !dbg !4 {
  call void @__tsan_unaligned_read4(ptr %x), !dbg !5
  %1 = load float, ptr %x, align 4, !dbg !5
  %2 = load <4 x i64>, ptr %y, align 32, !tbaa !7, !dbg !6
  store <2 x i64> zeroinitializer, ptr %y, align 16, !dbg !6
  store <4 x i64> <i64 0, i64 1, i64 2, i64 3>, ptr %x, align 32, !dbg !6
  ret void
}
define void @hop(ptr %x) #4 {
  store <8 x float> zeroinitializer, ptr %x, align 32
  ret void
}
attributes #3 = { nounwind sanitize_thread uwtable "frame-pointer"="all" }
attributes #4 = { nounwind uwtable }
"""


def test_instrumented_functions_call_hooks_with_what_they_look_at() -> None:
    kernel, rest = with_inlined_hooks(CODE).split("}\n", 1)
    heading, first, *_ = kernel.splitlines()
    assert (heading, first) == ("define void @k(ptr %x, ptr %y) #3 !dbg !4 {", "  %ost.seen = call ptr @__ost_glance()")
    looked_at = "ptr %ost.seen, i64 %ost.arena, i64 %ost.bytes, ptr %ost.states"
    assert f"  call void @__ost_read4(ptr %x, {looked_at}), !dbg !5\n" in kernel
    assert "@__tsan_unaligned_read4" not in kernel
    assert "sanitize_thread" not in rest


def test_wide_accesses_of_instrumented_functions_call_the_hook_of_a_range() -> None:
    kernel, rest = with_inlined_hooks(CODE).split("}\n", 1)
    assert "  call void @__tsan_read_range(ptr %y, i64 32), !dbg !6\n  %2 = load <4 x i64>" in kernel
    assert "  call void @__tsan_write_range(ptr %x, i64 32), !dbg !6\n  store <4 x i64>" in kernel
    assert "@__tsan_write_range(ptr %y" not in kernel
    assert "declare void @__tsan_read_range(ptr, i64)" in rest
    assert "call" not in rest
