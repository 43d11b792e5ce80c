//! Plans memory for a small program, proves that it cannot be better, and draws it.
//!
//! `cargo run --example 04_plan > plan.svg`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks")]

use arenite::plan::svg::{Picture, Role};
use arenite::plan::{BufferSpec, Exact, GreedyBySize, Lifespan, Planner, Problem, Status, culprits, verify};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A buffer is a size and the steps at which it is alive: half-open, so the input of step 3 that was made
    // at step 0 lives in 0..4. Five layers, each reading what the one before wrote; a skip connection holds
    // the first result to the end.
    let sizes = [4096, 16384, 8192, 16384, 2048];
    let mut buffers: Vec<_> = sizes
        .iter()
        .zip(0..)
        .map(|(&size, step)| BufferSpec::new(size, Lifespan::new(step, step + 2)))
        .collect();
    buffers[0].lifespan.last = 6;
    // A cache that keeps its place from run to run.
    buffers.push(BufferSpec::new(1024, Lifespan::new(0, 6)).pinned_at(0));
    let problem = Problem::new(buffers).with_capacity(32 * 1024);

    // Any strategy gives a plan that has been verified; the exact one says how good it is.
    let quick = GreedyBySize.plan(&problem)?;
    let best = Exact::default().plan(&problem)?;
    let report = &best.reports[0];
    eprintln!(
        "greedy {} bytes, exact {} bytes, bound {}",
        quick.peak_bytes(0),
        report.peak_bytes,
        report.bound_bytes
    );
    assert_eq!(report.status, Status::Optimal);

    // Who makes the peak? Shrinking anything else saves nothing.
    let most = culprits(&problem, &best.spaces, 0);
    eprintln!("{} bytes are alive at step {}, in buffers {:?}", most.live_bytes, most.step, most.buffers);

    // The verifier shares no code with the planners: use it on plans that come from elsewhere.
    verify(&problem, &best)?;

    let role = |buffer| if buffer == 5 { Role::State } else { Role::Scratch };
    print!("{}", Picture::new(&problem, &best).title("five layers and a cache").role(role).to_svg());
    Ok(())
}
