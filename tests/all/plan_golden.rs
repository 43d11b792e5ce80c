//! Golden peaks: every exported program is planned to its lower bound, exactly.

use crate::plan_data::{Known, beside, perfect, programs, rounded};
use arenite::plan::{
    Alias, Budget, Exact, Plan, PlanError, Planner, Portfolio, Problem, Status, lower_bounds, verify,
};

/// Program, buffers, buffers without bytes, optimal peak with sizes rounded to 16 and to 64, exporter's peak.
#[rustfmt::skip]
const PROGRAMS: [(&str, usize, usize, u64, u64, u64); 33] = [
    ("chain100", 101, 0, 512, 512, 512),
    ("convnext_tiny", 268, 0, 10_838_016, 10_838_016, 15_458_304),
    ("densenet121", 675, 242, 8_429_568, 8_429_568, 9_715_712),
    ("efficientnet_b0", 387, 98, 14_450_688, 14_450_688, 14_753_792),
    ("googlenet", 325, 114, 6_422_528, 6_422_528, 7_307_264),
    ("inception_v3", 507, 188, 11_063_808, 11_063_808, 13_723_904),
    ("kv", 5, 0, 288, 384, 288),
    ("llama12_prefill", 903, 0, 10_158_080, 10_158_080, 10_683_392),
    ("llama_s_decode", 453, 0, 2_235_392, 2_235_392, 2_362_896),
    ("llama_s_prefill", 459, 0, 2_686_976, 2_686_976, 2_925_056),
    ("lm4", 145, 0, 114_688, 114_688, 139_264),
    ("lraspp_mv3", 448, 94, 13_107_200, 13_107_200, 15_155_200),
    ("lstm2", 746, 0, 91_648, 91_648, 92_160),
    ("mlp", 6, 0, 2_816, 2_816, 2_816),
    ("mnasnet", 257, 104, 5_129_120, 5_129_152, 7_528_448),
    ("mobilenet_v2", 258, 104, 9_633_792, 9_633_792, 9_936_896),
    ("mobilenet_v3_small", 385, 68, 4_104_096, 4_104_128, 4_898_816),
    ("nas200", 514, 0, 1_204_224, 1_204_224, 1_430_016),
    ("nas60", 175, 0, 2_157_568, 2_157_568, 2_558_976),
    ("nas800", 1859, 0, 1_411_200, 1_411_200, 1_555_456),
    ("regnet_y_400mf", 377, 106, 5_419_008, 5_419_008, 5_419_008),
    ("resnet18", 111, 40, 6_422_528, 6_422_528, 6_422_528),
    ("resnet50", 283, 106, 9_633_792, 9_633_792, 14_614_528),
    ("seed_net", 6, 0, 768, 768, 768),
    ("shufflenet_v2", 341, 112, 4_104_096, 4_104_128, 4_698_112),
    ("squeezenet1_1", 70, 0, 6_308_352, 6_308_352, 6_308_352),
    ("swin_t", 1119, 0, 10_838_016, 10_838_016, 15_458_304),
    ("train_lm", 666, 0, 3_313_424, 3_313_472, 3_560_208),
    ("train_mlp8", 205, 0, 339_056, 339_136, 376_688),
    ("train_resnet18", 1211, 0, 94_787_568, 94_787_648, 95_474_416),
    ("train_unet3", 920, 0, 4_181_296, 4_183_232, 4_263_120),
    ("unet4", 108, 36, 16_777_216, 16_777_216, 16_777_216),
    ("vit_b_16", 637, 0, 13_068_288, 13_068_288, 14_278_656),
];

/// The bound with sizes rounded to 16 once results are written over inputs that die, where that lowers it.
#[rustfmt::skip]
const IN_PLACE: &[(&str, u64)] = &[
    ("convnext_tiny", 10_340_352),
    ("efficientnet_b0", 9_633_792),
    ("llama12_prefill", 10_027_008),
    ("nas60", 2_007_040),
    ("squeezenet1_1", 5_477_376),
    ("train_lm", 3_313_184),
    ("train_resnet18", 94_656_496),
];

fn planned(known: &Known, to: u64, planner: &dyn Planner) -> Plan {
    planner.plan(&rounded(&known.problem, to)).unwrap()
}

#[test]
fn every_program_is_planned_to_its_bound_and_proven() {
    for (known, golden) in programs(false).iter().zip(PROGRAMS) {
        let zero = known.problem.buffers.iter().filter(|spec| spec.size_bytes == 0).count();
        assert_eq!((known.name.as_str(), known.problem.buffers.len(), zero), (golden.0, golden.1, golden.2));
        for (to, peak) in [(16, golden.3), (64, golden.4)] {
            let plan = planned(known, to, &Exact::default());
            assert_eq!(
                (plan.peak_bytes(0), plan.reports[0].status),
                (peak, Status::Optimal),
                "{}",
                known.name
            );
        }
    }
}

#[test]
fn exact_sizes_with_zero_size_buffers_reach_the_bound_too() {
    for known in programs(false) {
        let plan = Exact::default().plan(&known.problem).unwrap();
        assert_eq!(plan.reports[0].status, Status::Optimal, "{}", known.name);
        assert_eq!(plan.peak_bytes(0), lower_bounds(&known.problem).unwrap()[0]);
    }
}

#[test]
fn the_fast_mode_reaches_the_bound_of_every_program_and_is_never_above_the_exporter() {
    for (known, golden) in programs(false).iter().zip(PROGRAMS) {
        let peak = planned(known, 16, &Portfolio).peak_bytes(0);
        assert!(peak <= golden.5 && peak == golden.3, "{}: {peak}", known.name);
    }
}

#[test]
fn the_exporters_own_plans_verify() {
    for known in programs(false) {
        verify(&known.problem, &Plan::from_offsets(&known.problem, known.offsets.clone())).unwrap();
    }
}

#[test]
fn results_written_over_inputs_lower_the_peak_where_they_can() {
    for known in programs(true).iter().filter(|known| known.name != "train_resnet18") {
        let Some(&(_, bound)) = IN_PLACE.iter().find(|(name, _)| *name == known.name) else { continue };
        let mut problem = known.problem.clone();
        for spec in &mut problem.buffers {
            spec.size_bytes = spec.size_bytes.next_multiple_of(16);
        }
        let plan = Exact::default().plan(&problem).unwrap();
        let apart = Exact::default().plan(&rounded(&known.problem, 16)).unwrap();
        assert!(plan.peak_bytes(0) < apart.peak_bytes(0), "{}", known.name);
        assert!(plan.peak_bytes(0) <= bound, "{}: {} above {bound}", known.name, plan.peak_bytes(0));
        let offered = |&(buffer, of): &(u32, u32)| {
            problem.buffers[buffer as usize].alias() == Some(Alias::May { of: of as usize })
        };
        assert!(!plan.shared.is_empty() && plan.shared.iter().all(offered));
    }
}

#[test]
fn perfect_packings_verify_and_small_ones_are_solved() {
    for known in perfect() {
        let problem = known.problem.clone().with_capacity(1024);
        verify(&problem, &Plan::from_offsets(&problem, known.offsets)).unwrap();
        assert_eq!(lower_bounds(&problem).unwrap(), [1024]);
        if problem.buffers.len() <= 100 {
            let plan = Exact::default().plan(&problem).unwrap();
            assert_eq!(
                (plan.peak_bytes(0), plan.reports[0].status),
                (1024, Status::Optimal),
                "{}",
                known.name
            );
        }
    }
}

#[test]
fn large_perfect_packings_come_within_three_tenths_in_few_nodes() {
    for known in perfect().iter().filter(|known| known.problem.buffers.len() >= 400) {
        let plan = Exact::new(Budget::nodes(60_000)).plan(&known.problem).unwrap();
        assert!(plan.peak_bytes(0) * 10 <= 1024 * 13, "{}: {}", known.name, plan.peak_bytes(0));
    }
}

fn beside_facts(path: &str, buffers: usize, bound: u64) -> Option<Problem> {
    let table = beside(path)?;
    assert_eq!(table.problem.buffers.len(), buffers, "{path}");
    assert_eq!(lower_bounds(&table.problem).unwrap(), [bound], "{path}");
    Some(table.problem)
}

/// Instances that may lie beside the repository; without them this checks nothing.
#[test]
fn hard_instances_beside_the_repository_fit_their_capacity() {
    let bound = |name| match name {
        "C" => 1_039_360,
        "D" => 986_112,
        "J" => 989_184,
        _ => 1_048_576,
    };
    let counts = [154, 170, 203, 213, 215, 296, 308, 316, 374, 409, 454];
    for (name, count) in ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"].into_iter().zip(counts) {
        let Some(problem) = beside_facts(&format!("minimalloc/{name}.1048576.csv"), count, bound(name))
        else {
            return;
        };
        let planner = Exact::new(Budget::nodes(5_000_000)).stops_when_it_fits();
        let plan = planner.plan(&problem.with_capacity(1_048_576)).unwrap();
        assert!(plan.peak_bytes(0) <= 1_048_576);
    }
    beside_facts("minimalloc/input.12.csv", 5, 12);
    for (name, count, bound) in [
        ("iopddl_G_1", 816, 3_030_937_746),
        ("iopddl_S_1", 28_526, 1_498_635_932),
        ("iopddl_Y_1", 62_185, 497_261_190_115),
        ("somas_pangu_2.6B", 18_692, 5_530_099_775),
        ("somas_resnet50", 1_042, 1_515_472_556),
    ] {
        beside_facts(&format!("large/{name}.csv"), count, bound);
    }
}

#[test]
fn a_capacity_below_the_bound_is_refused_at_once_with_the_buffers_that_make_the_peak() {
    let known = programs(false).swap_remove(9);
    let problem = known.problem.with_capacity(2_000_000);
    let error = Exact::new(Budget::nodes(0)).plan(&problem).unwrap_err();
    let PlanError::Infeasible { bound_bytes, ref culprits, .. } = error else { panic!("{error}") };
    assert_eq!(bound_bytes, 2_686_976);
    assert!(!culprits.is_empty() && culprits.len() <= 16);
}
