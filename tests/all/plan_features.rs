//! Spaces, pins, aliases, idle gaps, files, pictures, budgets: each feature of planning behind the one call.

use crate::plan_data::{Random, perfect, programs, sparse, tiny};
use arenite::plan::csv::Table;
use arenite::plan::svg::{Picture, Role};
use arenite::plan::{
    Budget, BufferSpec, Cancel, Exact, FirstFit, GreedyBySize, IdleGap, Lifespan, Plan, Planner, Portfolio,
    Problem, SpaceSpec, Status, culprits, lower_bounds, replan, verify,
};
use std::sync::{Arc, Mutex};

fn spec(size: u64, first: u64, last: u64) -> BufferSpec {
    BufferSpec::new(size, Lifespan::new(first, last))
}

#[test]
fn spaces_are_planned_on_their_own_with_their_own_alignment() {
    let buffers =
        vec![spec(10, 0, 2), spec(10, 1, 3).in_space(1), spec(10, 1, 3), spec(10, 1, 2).in_space(1)];
    let spaces = vec![SpaceSpec::with_capacity(42).align_bytes(32), SpaceSpec::with_capacity(20)];
    let plan = Exact::default().plan(&Problem::new(buffers).with_spaces(spaces)).unwrap();
    assert_eq!((plan.peak_bytes(0), plan.peak_bytes(1)), (42, 20));
    assert!(plan.reports.iter().all(|report| report.status == Status::Optimal));
}

#[test]
fn what_gains_least_is_spilled_to_the_next_space() {
    let both = |size, accesses| spec(size, 0, 4).permitted(vec![0, 1], accesses);
    let buffers = vec![both(40, 4000), both(40, 40), both(40, 400)];
    let spaces = vec![SpaceSpec::with_capacity(80), SpaceSpec::default()];
    let plan = GreedyBySize.plan(&Problem::new(buffers).with_spaces(spaces)).unwrap();
    assert_eq!(plan.spaces, [0, 1, 0]);
}

#[test]
fn a_long_program_spills_in_a_few_plans_and_keeps_the_small_space_full() {
    let mut problem = sparse(20_000, 4);
    let bound = lower_bounds(&problem).unwrap()[0];
    let spec = |spec: BufferSpec| {
        let accesses = spec.size_bytes / 64;
        spec.permitted(vec![0, 1], accesses)
    };
    problem.buffers = problem.buffers.into_iter().map(spec).collect();
    let spaces = vec![SpaceSpec::with_capacity(bound / 3), SpaceSpec::default()];
    let plans = Arc::new(Mutex::new(0));
    let count = Arc::clone(&plans);
    let exact = Exact::new(Budget::nodes(0)).on_improved(move |_, _| *count.lock().unwrap() += 1);
    let problem = problem.with_spaces(spaces);
    for planner in [&GreedyBySize as &dyn Planner, &exact] {
        let plan = planner.plan(&problem).unwrap();
        verify(&problem, &plan).unwrap();
        assert!(plan.peak_bytes(0) <= bound / 3);
        let spilled = plan.spaces.iter().filter(|space| **space == 1).count();
        assert!((1..5_000).contains(&spilled), "{spilled}");
    }
    assert!(*plans.lock().unwrap() <= 2 * 32, "{plans:?}");
}

#[test]
fn pins_stay_and_the_rest_is_placed_around_them() {
    let buffers = vec![spec(16, 0, 4).pinned_at(8), spec(8, 0, 4), spec(24, 0, 4), spec(8, 3, 6)];
    for planner in [&GreedyBySize as &dyn Planner, &FirstFit, &Portfolio, &Exact::default()] {
        let plan = planner.plan(&Problem::new(buffers.clone())).unwrap();
        assert_eq!(plan.offsets[0], 8);
        assert_eq!(plan.peak_bytes(0), 56);
    }
}

#[test]
fn a_wished_offset_is_granted_when_free() {
    let buffers = vec![spec(8, 0, 4), spec(8, 0, 4).wished_at(64), spec(4, 0, 4).wished_at(2)];
    let plan = GreedyBySize.plan(&Problem::new(buffers)).unwrap();
    assert_eq!(plan.offsets[..2], [0, 64]);
    assert_eq!(plan.offsets[2], 8);
}

#[test]
fn views_lie_in_their_storage_and_keep_it_alive() {
    let buffers =
        vec![spec(32, 0, 2), spec(8, 1, 6).must_alias(0, 16), spec(4, 2, 3).must_alias(1, 4), spec(16, 4, 6)];
    let plan = Exact::default().plan(&Problem::new(buffers)).unwrap();
    assert_eq!(plan.offsets[1], plan.offsets[0] + 16);
    assert_eq!(plan.offsets[2], plan.offsets[0] + 20);
    assert_eq!(plan.peak_bytes(0), 48);
}

#[test]
fn a_chain_of_results_is_written_in_place() {
    let mut buffers = vec![spec(100, 0, 2)];
    buffers.extend((1..6).map(|step| spec(100, step as u64, step as u64 + 2).may_alias(step - 1)));
    let problem = Problem::new(buffers);
    let plan = Exact::default().plan(&problem).unwrap();
    assert_eq!((plan.peak_bytes(0), plan.shared.len()), (100, 5));
    verify(&problem, &plan).unwrap();
}

#[test]
fn idle_steps_lend_their_bytes() {
    let gap = |first, last, used_bytes| IdleGap { span: Lifespan::new(first, last), used_bytes };
    let idle = vec![spec(64, 0, 9).idle(vec![gap(3, 6, None)]), spec(64, 3, 6)];
    for planner in [&GreedyBySize as &dyn Planner, &FirstFit, &Portfolio, &Exact::default()] {
        assert_eq!(planner.plan(&Problem::new(idle.clone())).unwrap().peak_bytes(0), 64);
    }
    let partly = vec![spec(64, 0, 9).idle(vec![gap(3, 6, Some(0..16))]), spec(48, 3, 6)];
    let plan = Portfolio.plan(&Problem::new(partly.clone())).unwrap();
    assert_eq!(plan.peak_bytes(0), 64);
    let problem = Problem::new(partly);
    let on_used = Plan::from_offsets(&problem, vec![0, 8]);
    assert!(verify(&problem, &on_used).is_err());
}

#[test]
fn one_call_takes_everything_at_once() {
    let gap = IdleGap { span: Lifespan::new(3, 6), used_bytes: Some(0..8) };
    let buffers = vec![
        spec(64, 0, 10).pinned_at(16),
        spec(16, 1, 12).must_alias(0, 16),
        spec(32, 2, 5).align_bytes(32),
        spec(32, 4, 8).may_alias(2),
        spec(48, 0, 9).idle(vec![gap]),
        spec(40, 3, 6).align_bytes(8),
        spec(96, 0, 6).permitted(vec![0, 1], 7),
        spec(24, 0, 6).in_space(1).wished_at(128),
        spec(0, 2, 5),
    ];
    let spaces =
        vec![SpaceSpec::with_capacity(224).align_bytes(8), SpaceSpec::with_capacity(512).align_bytes(64)];
    let problem = Problem::new(buffers).with_spaces(spaces);
    for planner in [&GreedyBySize as &dyn Planner, &FirstFit, &Portfolio, &Exact::default()] {
        let plan = planner.plan(&problem).unwrap();
        verify(&problem, &plan).unwrap();
        assert_eq!((plan.offsets[0], plan.offsets[1], plan.spaces[7]), (16, 32, 1));
        assert!(plan.peak_bytes(0) <= 224 && plan.peak_bytes(1) <= 512);
        let most = culprits(&problem, &plan.spaces, 0);
        assert!(most.buffers.contains(&0), "{most:?}");
        assert!(Picture::new(&problem, &plan).to_svg().contains("<svg"));
        let again = replan(&problem, &plan, 400).unwrap();
        assert_eq!((again.moved, again.plan.offsets), (0, plan.offsets));
    }
}

#[test]
fn files_are_read_as_written() {
    let gap = IdleGap { span: Lifespan::new(2, 3), used_bytes: Some(0..4) };
    let buffers = vec![
        spec(16, 0, 4).align_bytes(16).pinned_at(32),
        spec(8, 1, 5).wished_at(8).idle(vec![gap]),
        spec(8, 1, 2).must_alias(0, 8),
        spec(8, 4, 6).may_alias(2),
        spec(8, 4, 6).in_space(1),
    ];
    let mut table =
        Table::parse("id,lower,upper,size\na,0,1,1\nb,0,1,1\nc,0,1,1\nd,0,1,1\ne,0,1,1\n").unwrap();
    table.problem = Problem::new(buffers);
    let text = table.write();
    assert_eq!(Table::parse(&text).unwrap(), table, "{text}");
    let synonyms = Table::parse("size,buffer_id,end,begin\r\n4,x,2,0\r\n").unwrap();
    assert_eq!(synonyms.problem.buffers, [spec(4, 0, 3)]);
}

#[test]
fn a_solution_is_read_back_and_verifies() {
    let table = Table::parse("id,lower,upper,size\na,0,3,4\nb,1,5,8\n").unwrap();
    let plan = GreedyBySize.plan(&table.problem).unwrap();
    let again = table.parse_solution(&table.write_solution(&plan)).unwrap();
    assert_eq!(again.offsets, plan.offsets);
    assert_eq!(again.reported(&table.problem).unwrap().peak_bytes(0), 12);
}

#[test]
fn pictures_stand_alone_and_show_conflicts() {
    let problem = Problem::new(vec![spec(64, 0, 4), spec(32, 2, 6)]).with_capacity(128);
    let plan = GreedyBySize.plan(&problem).unwrap();
    let picture = |plan: &Plan| {
        let picture = Picture::new(&problem, plan).title("a <b> & c");
        picture.label(|at| format!("t{at} \"q\"")).role(|_| Role::State).to_svg()
    };
    let good = picture(&plan);
    assert!(good.contains("a &lt;b&gt; &amp; c") && good.contains("t1 &quot;q&quot;"));
    assert!(good.contains("capacity 128 B") && good.contains("bytes alive") && !good.contains("conflict"));
    assert!(!good.contains("href") && !good.contains("<script"));
    let bad = picture(&Plan::from_offsets(&problem, vec![0, 32]));
    assert!(bad.contains("conflict: t1 &quot;q&quot; and t0 &quot;q&quot; share bytes 32..64"), "{bad}");
    let text = Picture::new(&problem, &Plan::from_offsets(&problem, vec![0, 32])).to_text(12, 4);
    assert!(text.contains('!') && text.contains('#'), "{text}");
}

#[test]
fn pictures_of_anything_are_finite() {
    let mut random = Random(9);
    for _ in 0..50 {
        let problem = tiny(&mut random, 6, false);
        let offsets = (0..6).map(|_| random.below(10)).collect();
        let svg = Picture::new(&problem, &Plan::from_offsets(&problem, offsets)).to_svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn the_buffers_that_make_the_peak_are_named() {
    let known = programs(false).into_iter().find(|known| known.name == "lm4").unwrap();
    let most = culprits(&known.problem, &[], 0);
    assert_eq!(most.live_bytes, 114_688);
    let sum: u64 = most.buffers.iter().map(|&buffer| known.problem.buffers[buffer].size_bytes).sum();
    assert_eq!(sum, most.live_bytes);
    assert!(most.rest_bytes <= most.live_bytes);
}

#[test]
fn a_search_can_be_stopped_and_tells_of_improvements() {
    let known = perfect().pop().unwrap();
    let cancel = Cancel::default();
    cancel.cancel();
    let plan = Exact::new(Budget::nodes(u64::MAX)).cancelled_by(cancel).plan(&known.problem).unwrap();
    assert_eq!(plan.reports[0].status, Status::Feasible);
    let peaks = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&peaks);
    let small = perfect().swap_remove(7);
    let exact = Exact::default().on_improved(move |peak, bound| told.lock().unwrap().push((peak, bound)));
    assert_eq!(exact.plan(&small.problem).unwrap().peak_bytes(0), 1024);
    let peaks = peaks.lock().unwrap();
    assert!(peaks.len() >= 2 && peaks.is_sorted_by(|a, b| a.0 > b.0), "{peaks:?}");
}
