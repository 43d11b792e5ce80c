//! A pool: blocks in any order, by tag, with a limit, and an error that says who holds the memory.
#![expect(clippy::print_stdout, reason = "an example prints")]

use arenite::{HostSpace, Mark, Pool, Readiness, Request};
use core::alloc::Layout;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(HostSpace::new()).with_name("kv cache").with_limit(1 << 20);
    let block = |size| Layout::from_size_align(size, 64);

    // Blocks come and go in any order; dropping one gives it back.
    let first = pool.allocate(block(100_000)?)?;
    let second = pool.allocate(block(50_000)?)?;
    drop(first);
    println!("live {} bytes in {} block", pool.stats().live_bytes, pool.stats().blocks);

    // Tags have figures and limits of their own.
    let prompts = pool.tag_with_limit("prompts", 300_000)?;
    let kept = pool.acquire(&Request::new(block(200_000)?).tagged(prompts))?;
    let refused = pool.acquire(&Request::new(block(200_000)?).tagged(prompts));
    println!("{}", refused.expect_err("over the limit of the tag"));

    // When the pool itself is full, the error names the largest owners, and what was tried.
    println!("{}", pool.allocate(block(900_000)?).expect_err("over the limit of the pool"));

    // Streams: memory is given back behind a mark, and reused at once only by the stream itself.
    let (compute, copies) = (pool.add_stream()?, pool.add_stream()?);
    let work = pool.acquire(&Request::new(block(60_000)?).on(compute))?.block;
    work.release_after(Mark { stream: compute, value: 1 });
    let other = pool.acquire(&Request::new(block(60_000)?).on(copies).without_growth())?;
    match other.readiness {
        Readiness::NeedsWait(mark) => println!("the copies wait for {} of the other stream", mark.value),
        ready => println!("usable at once: {ready:?}"),
    }
    drop((second, kept, other));
    Ok(())
}
