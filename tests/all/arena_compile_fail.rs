//! Programs that must not compile: what a scope holds cannot leave it, device memory is not read by mistake.

#[test]
#[cfg_attr(miri, ignore = "calls the compiler")]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/all/compile_fail/arena_*.rs");
}
