"""What is changed in LLVM assembly so that clang inlines the hooks that look for bounds."""

from __future__ import annotations

from ostinato.backends.cpu.inlined_hooks import with_inlined_hooks

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


def changed(body: str) -> list[str]:
    """The calls of hooks, in order, in an instrumented function with these lines; without what hooks look at."""
    attributes = "attributes #3 = { nounwind sanitize_thread uwtable }\n"
    text = with_inlined_hooks(f"define void @k(ptr %x, i64 %i, i64 %j) #3 {{\n{body}  ret void\n}}\n{attributes}")
    lines = text.split("  ret void")[0].splitlines()[5:]
    return [line.strip().split(", ptr %ost.seen")[0] for line in lines if "@__ost" in line]


def test_accesses_at_constant_distances_are_looked_at_together() -> None:
    assert changed("""  %1 = getelementptr inbounds nuw float, ptr %x, i64 %i
  %2 = getelementptr inbounds nuw i8, ptr %1, i64 64
  call void @__tsan_read4(ptr %2), !dbg !5
  %3 = getelementptr i8, ptr %2, i64 -72
  call void @__tsan_write8(ptr %3)
""") == [
        "%ost.known.0.0 = call zeroext i1 @__ost_are_inside(ptr %1, i64 -8, i64 68",
        "call void @__ost_grouped_read4(ptr %1, i64 64, i1 %ost.known.0.0), !dbg !5",
        "call void @__ost_grouped_write8(ptr %1, i64 -8, i1 %ost.known.0.0)",
    ]


def test_elements_of_an_unrolled_loop_are_looked_at_together() -> None:
    assert changed("""  %1 = getelementptr inbounds nuw half, ptr %x, i64 %i
  call void @__tsan_read2(ptr %1)
  %2 = or disjoint i64 %i, 1
  %3 = add nuw nsw i64 %i, 2
  %4 = getelementptr inbounds nuw half, ptr %x, i64 %3
  call void @__tsan_read2(ptr %4)
  %5 = getelementptr inbounds nuw half, ptr %x, i64 %2
  call void @__tsan_read2(ptr %5)
""") == [
        "%ost.known.0.0 = call zeroext i1 @__ost_are_inside(ptr %1, i64 0, i64 6",
        "call void @__ost_grouped_read2(ptr %1, i64 0, i1 %ost.known.0.0)",
        "call void @__ost_grouped_read2(ptr %1, i64 4, i1 %ost.known.0.0)",
        "call void @__ost_grouped_read2(ptr %1, i64 2, i1 %ost.known.0.0)",
    ]


def test_accesses_of_different_blocks_are_looked_at_alone() -> None:
    assert changed("""  %1 = getelementptr inbounds nuw i8, ptr %x, i64 64
  call void @__tsan_read4(ptr %x)
  br label %2

2:                                                ; preds = %0
  call void @__tsan_read4(ptr %1)
""") == ["call void @__ost_read4(ptr %x", "call void @__ost_read4(ptr %1"]


def test_elements_of_different_size_or_index_are_looked_at_alone() -> None:
    assert changed("""  %1 = getelementptr inbounds nuw float, ptr %x, i64 %i
  call void @__tsan_read4(ptr %1)
  %2 = getelementptr inbounds nuw half, ptr %x, i64 %i
  call void @__tsan_read2(ptr %2)
  %3 = getelementptr inbounds nuw float, ptr %x, i64 %j
  call void @__tsan_read4(ptr %3)
""") == [f"call void @__ost_read{size}(ptr %{number}" for number, size in ((1, 4), (2, 2), (3, 4))]


def test_variables_of_the_function_have_hooks_of_their_own() -> None:
    assert changed("""  %1 = alloca { [4 x float], i32 }, align 4
  %2 = getelementptr inbounds nuw [4 x float], ptr %1, i64 0, i64 %i
  call void @__tsan_write4(ptr %2)
  call void @__tsan_write4(ptr %1)
""") == ["call void @__ost_local_write4(ptr %2", "call void @__ost_local_write4(ptr %1"]


def test_constant_addresses_keep_their_brackets() -> None:
    address = "getelementptr (i8, ptr inttoptr (i64 8 to ptr), i64 4)"
    assert changed(f"  call void @__tsan_write4(ptr {address}), !dbg !5\n") == [
        f"call void @__ost_write4(ptr {address}"
    ]


def test_accesses_of_other_sizes_call_the_hook_of_a_range() -> None:
    code = CODE.replace("load <4 x i64>, ptr %y, align 32", "load i24, ptr %y, align 1")
    code = code.replace("store <2 x i64> zeroinitializer", "store <3 x float> zeroinitializer")
    kernel = with_inlined_hooks(code).split("}\n", 1)[0]
    assert "  call void @__tsan_read_range(ptr %y, i64 3), !dbg !6\n  %2 = load i24" in kernel
    assert "  call void @__tsan_write_range(ptr %y, i64 12), !dbg !6\n  store <3 x float>" in kernel
