//! Bad input: every error is caused, and says where.

use arenite::plan::csv::{CsvError, Table};
use arenite::plan::{
    Alias, AliasFault, Budget, BufferSpec, Exact, GreedyBySize, IdleGap, Lifespan, Plan, PlanError, Planner,
    Problem, SpaceSpec, Violation, verify,
};

fn spec(size: u64, first: u64, last: u64) -> BufferSpec {
    BufferSpec::new(size, Lifespan::new(first, last))
}

fn fault(buffers: Vec<BufferSpec>) -> PlanError {
    GreedyBySize.plan(&Problem::new(buffers)).unwrap_err()
}

#[test]
fn contradictory_buffers_are_named() {
    assert!(matches!(
        fault(vec![spec(1, 0, 1), spec(1, 5, 3)]),
        PlanError::ReversedLifespan { buffer: 1, first: 5, last: 3 }
    ));
    for align_bytes in [0, 3, 48, 1 << 40] {
        let error = fault(vec![spec(1, 0, 1).align_bytes(align_bytes)]);
        assert_eq!(error, PlanError::BufferAlign { buffer: 0, align_bytes });
    }
    let spaces = vec![SpaceSpec::default().align_bytes(12)];
    let error = GreedyBySize.plan(&Problem::new(vec![]).with_spaces(spaces)).unwrap_err();
    assert!(matches!(error, PlanError::SpaceAlign { space: 0, align_bytes: 12 }));
    assert!(matches!(
        fault(vec![spec(1, 0, 1).in_space(7)]),
        PlanError::UnknownSpace { buffer: 0, space: 7, spaces: 1 }
    ));
    assert!(matches!(fault(vec![spec(u64::MAX, 0, 1)]), PlanError::Overflow { buffer: 0, .. }));
    assert!(matches!(
        fault(vec![spec(8, 0, 1).pinned_at(u64::MAX - 3)]),
        PlanError::Overflow { buffer: 0, .. }
    ));
    let pinned = spec(8, 0, 1).align_bytes(4).pinned_at(6);
    assert!(matches!(
        fault(vec![pinned]),
        PlanError::MisalignedPin { buffer: 0, offset_bytes: 6, align_bytes: 4 }
    ));
    let gap = |first, last| vec![IdleGap { span: Lifespan::new(first, last), used_bytes: None }];
    assert!(matches!(fault(vec![spec(8, 0, 4).idle(gap(3, 6))]), PlanError::Gap { buffer: 0, .. }));
    assert!(matches!(fault(vec![spec(8, 0, 4).idle(gap(2, 2))]), PlanError::Gap { buffer: 0, .. }));
}

#[test]
fn pins_in_conflict_name_both() {
    let error = fault(vec![spec(8, 0, 4).pinned_at(0), spec(1, 0, 9), spec(8, 3, 6).pinned_at(4)]);
    assert_eq!(error, PlanError::PinConflict { a: 0, b: 2, bytes: 4..8, step: 3 });
    let error =
        GreedyBySize.plan(&Problem::new(vec![spec(8, 0, 1).pinned_at(8)]).with_capacity(12)).unwrap_err();
    assert!(matches!(error, PlanError::Infeasible { bound_bytes: 16, capacity_bytes: 12, .. }));
}

#[test]
fn aliases_that_cannot_hold_say_why() {
    let reason = |buffers| match fault(buffers) {
        PlanError::Alias { reason, .. } => reason,
        other => panic!("{other}"),
    };
    assert_eq!(reason(vec![spec(8, 0, 1).must_alias(4, 0)]), AliasFault::Unknown);
    assert_eq!(reason(vec![spec(8, 0, 1).must_alias(0, 0)]), AliasFault::Circle);
    assert_eq!(
        reason(vec![spec(8, 0, 1).must_alias(1, 0), spec(8, 0, 1).must_alias(0, 0)]),
        AliasFault::Circle
    );
    assert_eq!(reason(vec![spec(8, 0, 1).in_space(1), spec(8, 0, 1).must_alias(0, 0)]), AliasFault::Space);
    assert_eq!(reason(vec![spec(8, 0, 1), spec(8, 0, 1).must_alias(0, u64::MAX - 4)]), AliasFault::Bounds);
    assert_eq!(reason(vec![spec(8, 0, 1), spec(4, 0, 1).align_bytes(4).must_alias(0, 2)]), AliasFault::Align);
    let pins = vec![spec(8, 0, 1).pinned_at(16), spec(4, 0, 1).pinned_at(24).must_alias(0, 4)];
    assert_eq!(reason(pins), AliasFault::Pin);
    assert_eq!(reason(vec![spec(8, 0, 5), spec(8, 2, 6).may_alias(0)]), AliasFault::Alive);
    let gaps = vec![IdleGap { span: Lifespan::new(1, 2), used_bytes: None }];
    assert_eq!(reason(vec![spec(8, 0, 5).idle(gaps), spec(8, 4, 6).may_alias(0)]), AliasFault::Gaps);
}

#[test]
fn impossible_capacities_are_refused_before_any_search() {
    let problem = Problem::new(vec![spec(8, 0, 4), spec(3, 1, 2), spec(16, 2, 3)]).with_capacity(20);
    let error = Exact::new(Budget::nodes(u64::MAX)).plan(&problem).unwrap_err();
    assert_eq!(
        error,
        PlanError::Infeasible {
            space: 0,
            capacity_bytes: 20,
            bound_bytes: 24,
            step: 2,
            culprits: vec![2, 0]
        }
    );
    let words = error.to_string();
    assert!(words.contains("20") && words.contains("24") && words.contains("[2, 0]"), "{words}");
}

#[test]
fn a_heuristic_that_misses_the_capacity_says_so_without_a_proof() {
    let known = crate::plan_data::perfect().swap_remove(6);
    let error = GreedyBySize.plan(&known.problem.clone().with_capacity(1024)).unwrap_err();
    assert!(matches!(error, PlanError::DoesNotFit { bound_bytes: 1024, peak_bytes: 1025.., .. }), "{error}");
    assert!(Exact::default().plan(&known.problem.with_capacity(1024)).is_ok());
}

#[test]
fn the_verifier_finds_each_fault() {
    let problem = Problem::new(vec![
        spec(8, 0, 4).align_bytes(8),
        spec(8, 2, 6).pinned_at(16),
        spec(4, 3, 5).must_alias(0, 4),
        spec(8, 3, 8).may_alias(0),
    ])
    .with_capacity(64);
    let plan = GreedyBySize.plan(&problem).unwrap();
    verify(&problem, &plan).unwrap();
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        verify(&problem, &plan).unwrap_err()
    };
    assert!(matches!(broken(&|p| p.offsets.truncate(3)), Violation::Count { expected: 4, got: 3 }));
    assert!(matches!(broken(&|p| p.offsets[0] = 4), Violation::Misaligned { buffer: 0, .. }));
    assert!(matches!(broken(&|p| p.offsets[1] = 24), Violation::PinMoved { buffer: 1, .. }));
    assert!(matches!(broken(&|p| p.offsets[3] = 60), Violation::OverCapacity { buffer: 3, .. }));
    assert!(matches!(broken(&|p| p.offsets[3] = u64::MAX), Violation::OverCapacity { buffer: 3, .. }));
    assert!(matches!(broken(&|p| p.spaces[3] = 1), Violation::WrongSpace { buffer: 3, .. }));
    assert!(matches!(broken(&|p| p.offsets[2] += 1), Violation::ViewMoved { buffer: 2, of: 0, .. }));
    assert!(matches!(broken(&|p| p.offsets[3] = 18), Violation::Conflict { a: 1, b: 3, .. }));
    assert!(matches!(broken(&|p| p.shared.push((1, 0))), Violation::SharingNotAllowed { buffer: 1, of: 0 }));
    // Buffer 0 is offered to buffer 3, but its view lives on: the offer cannot be taken.
    assert!(matches!(broken(&|p| p.shared.push((3, 0))), Violation::SharingNotAllowed { buffer: 3, of: 0 }));
    assert_eq!(problem.buffers[3].alias(), Some(Alias::May { of: 0 }));
}

#[test]
fn malformed_files_name_the_line() {
    let fault = |text: &str| Table::parse(text).unwrap_err();
    let unknown = CsvError::UnknownColumn { column: "colour".into() };
    assert_eq!(fault("id,lower,upper,size,colour\n"), unknown);
    assert!(matches!(fault("id,lower,begin,upper,size\n"), CsvError::DuplicateColumn { .. }));
    assert!(matches!(fault("id,lower,upper,end,size\n"), CsvError::DuplicateColumn { .. }));
    assert_eq!(fault("id,lower,size\n"), CsvError::MissingColumn { column: "upper" });
    assert_eq!(fault(""), CsvError::MissingColumn { column: "id" });
    let head = "id,lower,upper,size\na,0,1,4\n";
    assert_eq!(fault(&format!("{head}b,0,1\n")), CsvError::FieldCount { line: 3, expected: 4, got: 3 });
    assert_eq!(fault(&format!("{head}b,0,1,2,3\n")), CsvError::FieldCount { line: 3, expected: 4, got: 5 });
    for bad in ["x", "-5", "1.5", "", "99999999999999999999"] {
        let error = fault(&format!("{head}b,0,1,{bad}\n"));
        assert!(matches!(error, CsvError::Field { line: 3, column: "size", .. }), "{error}");
    }
    assert!(matches!(
        fault(&format!("{head}a,0,1,2\n")),
        CsvError::DuplicateId { line: 3, first_line: 2, .. }
    ));
    assert!(matches!(
        fault("id,start,end,size,gaps\na,0,9,4,2+3\n"),
        CsvError::Field { line: 2, column: "gaps", .. }
    ));
    assert!(matches!(fault("id,lower,upper,size,alias\na,0,9,4,z\n"), CsvError::UnknownId { line: 2, .. }));
    let table = Table::parse(head).unwrap();
    assert!(matches!(table.parse_solution("id,offset\n"), Err(CsvError::MissingId { .. })));
    assert!(matches!(table.parse_solution("id,offset\nq,0\n"), Err(CsvError::UnknownId { line: 2, .. })));
    assert!(matches!(
        table.parse_solution("id,offset\na,0\na,0\n"),
        Err(CsvError::DuplicateId { line: 3, .. })
    ));
}
