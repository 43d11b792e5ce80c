//! Planners against brute force, the fast verifier against all pairs, and what must not change a plan.

use crate::plan_data::{Random, crowded, perfect, programs, rounded, sparse, tiny};
use arenite::plan::{
    BestFit, Budget, BufferSpec, Exact, FirstFit, GreedyBySize, IdleGap, Lifespan, Naive, Plan, PlanError,
    Planner, Portfolio, Problem, Replanner, SpaceSpec, Status, Tiered, Violation, lower_bounds, replan,
    verify,
};
use core::time::Duration;

fn planners() -> [Box<dyn Planner>; 6] {
    let exact = Exact::default();
    [
        Box::new(Naive),
        Box::new(FirstFit),
        Box::new(BestFit),
        Box::new(GreedyBySize),
        Box::new(Portfolio),
        Box::new(exact),
    ]
}

/// The lowest peak over all orders, each buffer at the lowest offset above its placed neighbours.
fn brute_force(problem: &Problem) -> u64 {
    fn go(problem: &Problem, offsets: &mut Vec<Option<u64>>, left: usize, peak: u64, best: &mut u64) {
        if left == 0 {
            *best = peak.min(*best);
            return;
        }
        for (at, spec) in problem.buffers.iter().enumerate() {
            if offsets[at].is_some() || peak >= *best {
                continue;
            }
            let below = problem.buffers.iter().zip(&*offsets).filter_map(|(other, offset)| {
                let meets = other.lifespan.overlaps(spec.lifespan) && other.size_bytes > 0;
                meets.then_some((*offset)? + other.size_bytes)
            });
            let start =
                if spec.size_bytes == 0 || spec.lifespan.is_empty() { 0 } else { below.max().unwrap_or(0) };
            let offset = match spec.pinned_bytes {
                Some(pin) if pin < start => continue,
                Some(pin) => pin,
                None => start.next_multiple_of(spec.align_bytes),
            };
            offsets[at] = Some(offset);
            go(problem, offsets, left - 1, peak.max(offset + spec.size_bytes), best);
            offsets[at] = None;
        }
    }
    let mut best = u64::MAX;
    go(problem, &mut vec![None; problem.buffers.len()], problem.buffers.len(), 0, &mut best);
    best
}

/// Whether no two live buffers share a byte, by looking at every pair.
fn all_pairs(problem: &Problem, offsets: &[u64]) -> bool {
    let range = |at: usize| offsets[at]..offsets[at] + problem.buffers[at].size_bytes;
    let alive = |at: usize| problem.buffers[at].size_bytes > 0;
    (0..offsets.len()).all(|b| {
        (0..b).filter(|&a| alive(a) && alive(b)).all(|a| {
            !problem.buffers[a].lifespan.overlaps(problem.buffers[b].lifespan)
                || range(a).end <= range(b).start
                || range(b).end <= range(a).start
        })
    })
}

#[test]
fn exact_search_equals_brute_force() {
    let mut random = Random(1);
    for round in 0..400 {
        let count = 1 + random.below(7);
        let problem = tiny(&mut random, count, round % 2 == 0);
        let best = brute_force(&problem);
        let plan = Exact::default().plan(&problem).unwrap();
        assert_eq!((plan.peak_bytes(0), plan.reports[0].status), (best, Status::Optimal), "{problem:?}");
        assert_eq!(Exact::default().plan(&problem.clone().with_capacity(best)).unwrap().peak_bytes(0), best);
        if best > 0 {
            let error = Exact::default().plan(&problem.with_capacity(best - 1)).unwrap_err();
            assert!(matches!(error, PlanError::Infeasible { .. }), "{error}");
        }
    }
}

#[test]
fn exact_search_with_a_pin_equals_brute_force() {
    let mut random = Random(2);
    for _ in 0..300 {
        let count = 2 + random.below(6);
        let mut problem = tiny(&mut random, count, true);
        let at = usize::try_from(random.below(count)).unwrap();
        problem.buffers[at].pinned_bytes = Some(random.below(3) * 4);
        let plan = Exact::default().plan(&problem).unwrap();
        assert_eq!(
            (plan.peak_bytes(0), plan.reports[0].status),
            (brute_force(&problem), Status::Optimal),
            "{problem:?}"
        );
    }
}

#[test]
fn every_strategy_holds_under_both_verifiers() {
    let mut random = Random(3);
    for round in 0..200 {
        let count = random.below(30);
        let mut problem = tiny(&mut random, count, round % 2 == 0);
        if round % 3 == 0 && count > 0 {
            problem.buffers[0].pinned_bytes = Some(8);
        }
        let bound = lower_bounds(&problem).unwrap()[0];
        for planner in planners() {
            let plan = planner.plan(&problem).unwrap();
            assert!(plan.peak_bytes(0) >= bound);
            assert!(all_pairs(&problem, &plan.offsets), "{problem:?}");
            assert!(problem.buffers.iter().zip(&plan.offsets).all(|(spec, at)| at % spec.align_bytes == 0));
        }
    }
}

#[test]
fn a_thousand_corruptions_are_found_as_all_pairs_finds_them() {
    let known = programs(false).into_iter().find(|known| known.name == "nas200").unwrap();
    let mut random = Random(4);
    let mut found = 0;
    for _ in 0..1000 {
        let mut offsets = known.offsets.clone();
        let at = usize::try_from(random.below(offsets.len() as u64)).unwrap();
        offsets[at] = random.below(1_200_000);
        let holds = all_pairs(&known.problem, &offsets);
        match verify(&known.problem, &Plan::from_offsets(&known.problem, offsets)) {
            Ok(()) => assert!(holds),
            Err(Violation::Conflict { a, b, .. }) => {
                assert!(!holds && (a == at || b == at));
                found += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn order_shift_and_scale_do_not_matter() {
    let mut random = Random(5);
    for round in 0..40 {
        let problem = tiny(&mut random, 7, round % 2 == 0);
        let peak = Exact::default().plan(&problem).unwrap().peak_bytes(0);
        let mut turned = problem.clone();
        turned.buffers.reverse();
        let mut later = problem.clone();
        later.buffers.iter_mut().for_each(|spec| {
            spec.lifespan = Lifespan::new(spec.lifespan.first + (1 << 40), spec.lifespan.last + (1 << 40));
        });
        let mut larger = problem.clone();
        larger.buffers.iter_mut().for_each(|spec| {
            (spec.size_bytes, spec.align_bytes) = (spec.size_bytes << 20, spec.align_bytes << 20);
        });
        let mut more = problem.clone();
        more.buffers.push(BufferSpec::new(0, Lifespan::new(0, 9)));
        let peak_of = |problem: &Problem| Exact::default().plan(problem).unwrap().peak_bytes(0);
        assert_eq!([peak_of(&turned), peak_of(&later), peak_of(&more)], [peak; 3]);
        assert_eq!(peak_of(&larger), peak << 20);
    }
}

#[test]
fn the_same_input_gives_the_same_offsets() {
    let problem = sparse(500, 7);
    for planner in planners() {
        assert_eq!(planner.plan(&problem).unwrap(), planner.plan(&problem).unwrap());
    }
}

#[test]
fn more_budget_is_never_worse_and_none_is_still_valid() {
    for known in perfect().iter().filter(|known| known.problem.buffers.len() == 200) {
        let mut before = u64::MAX;
        for nodes in [0, 100, 1_000, 5_000] {
            let plan = Exact::new(Budget::nodes(nodes)).plan(&known.problem).unwrap();
            assert!(plan.peak_bytes(0) <= before);
            before = plan.peak_bytes(0);
        }
        assert!(before <= GreedyBySize.plan(&known.problem).unwrap().peak_bytes(0));
    }
}

#[test]
fn extremes_are_planned() {
    let half = 1 << 63;
    let apart = vec![BufferSpec::new(half, Lifespan::new(0, 1)), BufferSpec::new(half, Lifespan::new(1, 2))];
    assert_eq!(Exact::default().plan(&Problem::new(apart)).unwrap().peak_bytes(0), half);
    let together =
        vec![BufferSpec::new(half, Lifespan::new(0, 2)), BufferSpec::new(half, Lifespan::new(1, 2))];
    for planner in planners() {
        let error = planner.plan(&Problem::new(together.clone())).unwrap_err();
        assert!(matches!(error, PlanError::Overflow { .. }), "{error}");
    }
    for planner in planners() {
        assert!(planner.plan(&Problem::new(vec![])).unwrap().offsets.is_empty());
        let one = Problem::new(vec![BufferSpec::new(5, Lifespan::new(3, 4))]);
        assert_eq!(planner.plan(&one).unwrap().offsets, [0]);
    }
}

#[test]
fn a_million_at_one_instant_or_in_a_chain() {
    let count = 1_000_000;
    let size = |at: u64| 16 * (1 + at % 7);
    let instant = Problem::new((0..count).map(|at| BufferSpec::new(size(at), Lifespan::new(0, 1))).collect());
    let all: u64 = (0..count).map(size).sum();
    let chain = Problem::new((0..count).map(|at| BufferSpec::new(16, Lifespan::new(at, at + 2))).collect());
    let no_search = Exact::new(Budget::nodes(0));
    for planner in [&GreedyBySize as &dyn Planner, &no_search] {
        assert_eq!(planner.plan(&instant).unwrap().peak_bytes(0), all);
    }
    for planner in [&FirstFit as &dyn Planner, &Portfolio] {
        assert_eq!(planner.plan(&chain).unwrap().peak_bytes(0), 32);
    }
}

/// Shapes that some order or other handles badly; each is planned at its bound, or near it.
fn shapes(count: u64) -> Vec<(&'static str, Problem, u64)> {
    let mut random = Random(11);
    let mut sized = |most: u64| 64 * (1 + random.below(most));
    let made = |each: &mut dyn FnMut(u64) -> BufferSpec| Problem::new((0..count).map(each).collect());
    let at = |size: u64, first: u64, last: u64| BufferSpec::new(size, Lifespan::new(first, last));
    let half = count / 2;
    vec![
        ("equal", made(&mut |step| at(64, step / 3, step / 3 + 1 + step % 50)), 100),
        ("nested", made(&mut |step| at(sized(99), step, 4 * count - step)), 100),
        ("a staircase", made(&mut |step| at(sized(99), step, step + 100)), 105),
        ("larger and larger", made(&mut |step| at(64 * (1 + step), step, step + 50)), 100),
        ("forward and back", made(&mut |step| at(sized(4_000), step, 2 * count - step + step % 3)), 101),
        ("two long chains", made(&mut |step| at(sized(99), step % half, step % half + 2)), 115),
        ("pinned one upon another", made(&mut |step| at(64, step, step + 9).pinned_at(64 * (step % 9))), 100),
    ]
}

#[test]
fn no_shape_is_far_above_its_bound_and_a_search_is_never_above_the_fast_mode() {
    for (name, problem, percent) in shapes(600) {
        let fast = Portfolio.plan(&problem).unwrap();
        let (peak, bound) = (fast.peak_bytes(0), fast.reports[0].bound_bytes);
        assert!(peak * 100 <= bound * percent, "{name}: {peak} over {bound}");
        for nodes in [0, 500] {
            let searched = Exact::new(Budget::nodes(nodes)).plan(&problem).unwrap().peak_bytes(0);
            assert!(searched <= peak, "{name}, {nodes} nodes: {searched} over {peak}");
        }
    }
}

/// A chain needs its two largest neighbours and no more, however long it is; whichever side each goes to.
#[test]
fn a_long_chain_of_any_sizes_is_planned_at_its_bound() {
    let mut random = Random(14);
    let size = |step| BufferSpec::new(64 * (1 + random.below(99)), Lifespan::new(step, step + 2));
    let chain = Problem::new((0..20_000).map(size).collect());
    for planner in [&GreedyBySize as &dyn Planner, &Portfolio, &Exact::new(Budget::nodes(0))] {
        let plan = planner.plan(&chain).unwrap();
        assert_eq!(
            (plan.reports[0].status, plan.reports[0].bound_bytes),
            (Status::Optimal, plan.peak_bytes(0))
        );
    }
}

#[test]
fn a_long_program_with_idle_gaps_comes_near_its_bound() {
    let mut random = Random(15);
    let spec = |step: u64| {
        let life = 6 + random.below(30);
        let gap = IdleGap { span: Lifespan::new(step + 2, step + life - 1), used_bytes: None };
        let spec = BufferSpec::new(64 * (1 + random.below(9_999)), Lifespan::new(step, step + life));
        if random.below(3) == 0 { spec.idle(vec![gap]) } else { spec }
    };
    let problem = Problem::new((0..20_000).map(spec).collect());
    let plan = GreedyBySize.plan(&problem).unwrap();
    verify(&problem, &plan).unwrap();
    assert!(plan.peak_bytes(0) * 100 <= plan.reports[0].bound_bytes * 115);
}

#[test]
fn a_search_of_few_sizes_is_never_above_the_fast_mode() {
    for seed in 0..8 {
        let mut random = Random(seed);
        let sizes = [0; 5].map(|_| 1024 * (1 + random.below(64)));
        let mut spec = |step: u64| {
            let size = sizes[usize::try_from(random.below(5)).unwrap()];
            BufferSpec::new(size, Lifespan::new(step, step + 1 + random.below(60)))
        };
        let problem = Problem::new((0..1_000).map(&mut spec).collect());
        let fast = Portfolio.plan(&problem).unwrap().peak_bytes(0);
        let searched = Exact::new(Budget::nodes(0)).plan(&problem).unwrap().peak_bytes(0);
        assert!(searched <= fast, "seed {seed}: {searched} over {fast}");
    }
}

#[test]
fn a_long_program_by_size_comes_within_its_target() {
    let plan = GreedyBySize.plan(&sparse(10_000, 1)).unwrap();
    let (peak, bound) = (plan.peak_bytes(0), plan.reports[0].bound_bytes);
    assert!(peak * 1_000 <= bound * 1_015, "{peak} over {bound}");
}

/// Of 120 seeds, the target is missed on one at 4,000 buffers (seed 16) and on four at 10,000.
#[test]
fn long_programs_of_nearly_every_seed_come_within_their_targets() {
    for seed in 1..13 {
        let problem = sparse(4_000, seed);
        let plan = GreedyBySize.plan(&problem).unwrap();
        let (peak, bound) = (plan.peak_bytes(0), plan.reports[0].bound_bytes);
        assert!(peak * 1_000 <= bound * 1_015, "seed {seed}: {peak} over {bound}");
        let peak = Tiered.plan(&problem).unwrap().peak_bytes(0);
        assert!(peak * 100 <= bound * 115, "seed {seed}, in tiers: {peak} over {bound}");
    }
}

#[test]
fn crowds_with_gaps_pins_and_alignments_hold_under_every_strategy_and_budget() {
    for (seed, gaps, pins) in [(1, false, false), (2, true, false), (3, false, true), (4, true, true)] {
        let problem = crowded(700, 150, seed, gaps, pins);
        let mut before = u64::MAX;
        for budget in [Budget::time(Duration::ZERO), Budget::nodes(0), Budget::nodes(200)] {
            let plan = Exact::new(budget).plan(&problem).unwrap();
            verify(&problem, &plan).unwrap();
            assert!(plan.peak_bytes(0) <= before && plan.peak_bytes(0) >= plan.reports[0].bound_bytes);
            before = plan.peak_bytes(0);
        }
        for planner in [&GreedyBySize as &dyn Planner, &Tiered, &BestFit, &Portfolio] {
            verify(&problem, &planner.plan(&problem).unwrap()).unwrap();
        }
    }
}

#[test]
fn no_time_at_all_still_gives_a_plan_that_fits_if_the_one_by_size_does() {
    let problem = crowded(900, 100, 5, false, false);
    let by_size = GreedyBySize.plan(&problem).unwrap().peak_bytes(0);
    let in_no_time = Exact::new(Budget::time(Duration::ZERO));
    assert!(in_no_time.plan(&problem).unwrap().peak_bytes(0) > by_size, "the case tells nothing");
    let plan = in_no_time.plan(&problem.with_capacity(by_size)).unwrap();
    assert_eq!(plan.peak_bytes(0), by_size);
}

#[test]
fn a_re_planner_follows_changes_and_agrees_with_its_problem() {
    let problem = sparse(3_000, 8);
    let plan = GreedyBySize.plan(&problem).unwrap();
    let mut live = Replanner::new(problem, plan).unwrap();
    let mut random = Random(6);
    for round in 0..20 {
        for _ in 0..10 {
            let at = usize::try_from(random.below(3_000)).unwrap();
            let mut spec = live.problem().buffers[at].clone();
            spec.size_bytes = 64 * (1 + random.below(4_000));
            live.set(at, spec).unwrap();
        }
        if round % 5 == 4 {
            live.push(BufferSpec::new(128, Lifespan::new(round, 3_000))).unwrap();
        }
        let moved = live.replan(60).unwrap();
        assert!(moved < 1_000 || live.plan().reports[0].peak_bytes > 0, "{moved}");
        verify(live.problem(), live.plan()).unwrap();
        let end = |(offset, spec): (&u64, &BufferSpec)| offset + spec.size_bytes;
        let peak = live.plan().offsets.iter().zip(&live.problem().buffers).map(end).max().unwrap();
        assert_eq!(live.plan().peak_bytes(0), peak);
        assert_eq!(live.plan().reports[0].bound_bytes, lower_bounds(live.problem()).unwrap()[0]);
    }
    let reversed = BufferSpec::new(1, Lifespan::new(3, 2));
    assert!(live.set(0, reversed.clone()).is_err() && live.push(reversed).is_err());
    verify(live.problem(), live.plan()).unwrap();
}

/// A problem of two spaces, one with room for its plan and hardly more, with pins and alignments.
fn mixed(random: &mut Random) -> Problem {
    let mut problem =
        crowded(60 + random.below(200), 20 + random.below(300), random.below(1 << 40), false, true);
    let unaligned = random.below(2) == 0;
    for spec in &mut problem.buffers {
        let in_second = spec.pinned_bytes.is_none() && random.below(3) == 0;
        spec.align_bytes = if unaligned && spec.pinned_bytes.is_none() { 1 } else { spec.align_bytes };
        spec.space = u32::from(in_second);
    }
    problem.buffers.push(BufferSpec::new(0, Lifespan::new(0, 5)));
    problem.buffers.push(BufferSpec::new(64, Lifespan::new(7, 7)));
    let spaces = vec![SpaceSpec::default(), SpaceSpec::default().align_bytes(1 << random.below(8))];
    let mut problem = problem.with_spaces(spaces);
    let peak = GreedyBySize.plan(&problem).unwrap().peak_bytes(1);
    problem.spaces[1].capacity_bytes = Some(peak + peak / 3);
    problem
}

/// Changes a buffer, mostly in size alone.
fn change(random: &mut Random, mut spec: BufferSpec) -> BufferSpec {
    match random.below(40) {
        0 => spec.lifespan = Lifespan::new(spec.lifespan.first, spec.lifespan.last + 3),
        1 if spec.pinned_bytes.is_none() => spec.align_bytes = 1 << random.below(8),
        2 if spec.lifespan.last - spec.lifespan.first > 3 => {
            let span = Lifespan::new(spec.lifespan.first + 1, spec.lifespan.last - 1);
            spec = BufferSpec::new(spec.size_bytes, spec.lifespan)
                .idle(vec![IdleGap { span, used_bytes: None }]);
        }
        3 => spec.size_bytes = 0,
        4 => spec.size_bytes *= 40,
        _ => spec.size_bytes = spec.size_bytes / 2 + random.below(spec.size_bytes + 64),
    }
    spec
}

#[test]
fn a_re_planner_holds_through_any_changes_of_any_problem() {
    let mut random = Random(21);
    let (mut moved_few, mut refused) = (0, 0);
    for _ in 0..60 {
        let problem = mixed(&mut random);
        let plan = GreedyBySize.plan(&problem).unwrap();
        let mut live = Replanner::new(problem, plan).unwrap();
        for _ in 0..12 {
            for _ in 0..1 + random.below(4) {
                let at = usize::try_from(random.below(live.problem().buffers.len() as u64)).unwrap();
                let spec = change(&mut random, live.problem().buffers[at].clone());
                live.set(at, spec).unwrap();
            }
            if random.below(8) == 0 {
                let first = random.below(200);
                live.push(BufferSpec::new(random.below(5_000), Lifespan::new(first, first + 9))).unwrap();
            }
            let before = live.plan().clone();
            let Ok(moved) = live.replan(random.below(40)) else {
                // Pins in conflict, or more than there is room for: the plan is the one before.
                assert_eq!(*live.plan(), before);
                refused += 1;
                break;
            };
            let places = |plan: &Plan| -> Vec<(u64, u32)> {
                plan.offsets.iter().copied().zip(plan.spaces.iter().copied()).collect()
            };
            let both = places(&before).into_iter().zip(places(live.plan())).zip(&live.problem().buffers);
            let differ =
                both.filter(|((before, after), spec)| before != after && spec.size_bytes > 0).count();
            assert_eq!(moved, differ);
            moved_few += usize::from((1..10).contains(&moved));
            verify(live.problem(), live.plan()).unwrap();
            let anew = live.plan().clone().reported(live.problem()).unwrap();
            assert_eq!(anew.reports, live.plan().reports);
            let whole = |spec: &BufferSpec| spec.gaps().is_empty();
            let mut here = live.problem().clone();
            for space in 0..2 {
                let other = here.buffers.iter_mut().zip(&live.problem().buffers);
                other.for_each(|(spec, own)| {
                    spec.size_bytes = if own.space == space { own.size_bytes } else { 0 }
                });
                assert!(!here.buffers.iter().all(whole) || all_pairs(&here, &live.plan().offsets));
            }
        }
    }
    assert!(moved_few > 100 && refused > 5 && refused < 55, "{moved_few}, {refused}");
}

#[test]
fn a_re_plan_keeps_what_still_fits() {
    let mut problem = sparse(5_000, 3);
    let old = GreedyBySize.plan(&problem).unwrap();
    assert_eq!(replan(&problem, &old, 20).unwrap().moved, 0);
    for spec in problem.buffers.iter_mut().step_by(100) {
        spec.size_bytes += 64;
    }
    problem.buffers.push(BufferSpec::new(128, Lifespan::new(0, 5_000)));
    let new = replan(&problem, &old, 50).unwrap();
    assert!(new.moved <= 500, "{}", new.moved);
    let peak = rounded(&problem, 1);
    assert!(new.plan.peak_bytes(0) >= lower_bounds(&peak).unwrap()[0]);
}
