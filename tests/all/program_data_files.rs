//! Tensors and blobs that lie in data files beside a program.

use super::support::program::{sample, visit};
use super::support::pte::{Field, Ptd, Pte, at, extra, slot, table};
use arenite::program::ProgramErrorKind::ExternalData;
use arenite::program::{
    ErrorCode, Fault, FileKind, Layout, Part, Placement, Program, ProgramError, ProgramErrorKind,
    ProgramOptions, Storage,
};
use arenite::tensor::DType;
use arenite::value::ValueId;

const ELEMENTS: [f32; 4] = [1.5, 2.5, 3.5, 4.5];

/// The sample with its constant, called `weight`, and its state in a data file.
fn external() -> Pte {
    let mut pte = Pte::sample();
    pte.inner(at::CONSTANT).set(slot::EXTRA, extra("weight", true));
    pte.inner(at::STATE).set(slot::EXTRA, extra("state", true));
    pte
}

fn data() -> Ptd {
    Ptd::tensors(&[("weight", &[2, 2], &ELEMENTS), ("state", &[2, 2], &[0.5; 4])])
}

fn open_with(pte: &Pte, data: &[&[u8]]) -> Result<Program, ProgramError> {
    let options = data.iter().fold(ProgramOptions::new(), |options, bytes| options.with_data_bytes(bytes));
    Program::from_bytes(&pte.bytes(), &options)
}

fn refusal(data: &[u8]) -> (ProgramError, Part, Fault) {
    let error = open_with(&external(), &[data]).map(|_| ()).unwrap_err();
    match &error {
        ProgramError::Invalid { at, fault } => {
            let (part, fault) = (at.part, fault.clone());
            (error, part, fault)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn constants_and_initial_values_come_from_the_data_file_by_name() {
    let program = open_with(&external(), &[&data().bytes()]).unwrap();
    visit(&program);
    let method = program.method("forward").unwrap();
    let floats = |items: [f32; 4]| items.iter().flat_map(|item| item.to_le_bytes()).collect::<Vec<_>>();
    let storage = |index: u32| method.tensor(ValueId(index)).unwrap().storage;
    match (storage(1), storage(13)) {
        (Storage::Constant(weight), Storage::Planned { initial: Some(state), .. }) => {
            assert_eq!(program.data(weight), floats(ELEMENTS));
            assert_eq!(program.data(state), floats([0.5; 4]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(method.state().next().unwrap().name, "state");
}

#[test]
fn a_real_export_with_weights_beside_it_is_read() {
    let options = ProgramOptions::new().with_data_file(sample("cases/h13_external_weights.weights.ptd"));
    let program = Program::open(sample("cases/h13_external_weights.pte"), &options).unwrap();
    visit(&program);
    let method = program.method("forward").unwrap();
    assert!(
        matches!(method.tensor(ValueId(0)).unwrap().storage, Storage::Constant(data) if data.size_bytes() == 48)
    );
    assert_eq!(program.constants().size_bytes, 48 + 12);
    assert_eq!(program.named_data().map(|blob| blob.key.to_owned()).collect::<Vec<_>>(), ["bias", "weight"]);
}

#[test]
fn without_its_data_file_a_program_can_be_looked_at_but_not_run() {
    let program = Program::open(sample("cases/h13_external_weights.pte"), &ProgramOptions::new()).unwrap();
    let method = &program.methods()[0];
    assert_eq!(method.missing_data().collect::<Vec<_>>(), ["weight", "bias"]);
    assert_eq!(method.describe_tensor(&method.tensors[0]).placement, Placement::Missing);
    let error = program.method("forward").map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ExternalData, ErrorCode::InvalidState));
    let text = error.to_string();
    assert!(text.ends_with(
        "forward: data \"weight\", \"bias\" lies outside the program; give its data file (.ptd) with data_path"
    ));
}

#[test]
fn a_data_file_without_the_key_is_named() {
    let other = Ptd::tensors(&[("state", &[2, 2], &[0.5; 4])]);
    let program = open_with(&external(), &[&other.bytes()]).unwrap();
    let error = program.method("forward").map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ExternalData, ErrorCode::NotFound));
    assert_eq!(
        error.to_string(),
        "<bytes>: forward: data \"weight\" is not in \"<data 1>\"; give the data file (.ptd) of this export with data_path"
    );
}

#[test]
fn several_data_files_are_one_as_long_as_keys_differ() {
    let weight = Ptd::tensors(&[("weight", &[2, 2], &ELEMENTS)]).bytes();
    let state = Ptd::tensors(&[("state", &[2, 2], &[0.5; 4])]).bytes();
    let program = open_with(&external(), &[&weight, &state]).unwrap();
    assert!(program.method("forward").is_ok());
    let error = open_with(&external(), &[&weight, &data().bytes()]).map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ExternalData, ErrorCode::InvalidArgument));
    assert!(matches!(&error, ProgramError::Invalid { fault: Fault::DataTwice { key, first }, .. }
        if **key == *"weight" && **first == *"<data 1>"));
}

#[test]
fn delegates_find_data_files_first() {
    let mut ptd = Ptd::tensors(&[("blob", &[1], &[1.0])]);
    ptd.row(0).remove(2);
    let program = open_with(&Pte::sample(), &[&ptd.bytes()]).unwrap();
    assert_eq!(program.named("blob"), Some(&1.0_f32.to_le_bytes()[..]));
    let all: Vec<_> = program.named_data().map(|blob| (blob.key, blob.size_bytes, blob.file)).collect();
    assert_eq!(all, [("blob", 4, "<data 1>"), ("blob", 5, "<bytes>")]);
}

#[test]
fn a_layout_of_another_export_is_refused_with_both() {
    let mut ptd = data();
    ptd.row(0).tab(2).set(1, Field::I32s(vec![4, 1]));
    let (error, part, fault) = refusal(&ptd.bytes());
    let layout = |sizes: [usize; 2]| {
        Box::new(Layout { dtype: DType::Float32, sizes: sizes.into(), order: [0, 1].into() })
    };
    assert_eq!(part, Part::Value(1));
    assert_eq!(
        fault,
        Fault::DataLayout { key: "weight".into(), wanted: layout([2, 2]), found: layout([4, 1]) }
    );
    assert_eq!((error.kind(), error.code()), (ExternalData, ErrorCode::InvalidExternalData));
    let mut ptd = data();
    ptd.row(0).tab(2).set(0, Field::I8(3));
    assert!(matches!(refusal(&ptd.bytes()).2, Fault::DataLayout { .. }));
    let mut ptd = data();
    ptd.row(0).tab(2).set(2, Field::Bytes(vec![1, 0]));
    assert!(matches!(refusal(&ptd.bytes()).2, Fault::DataLayout { .. }));
}

#[test]
fn a_blob_without_layout_is_no_tensor() {
    let mut ptd = data();
    ptd.row(0).remove(2);
    assert_eq!(refusal(&ptd.bytes()).2, Fault::NoDataLayout { key: "weight".into() });
}

#[test]
fn fewer_bytes_than_the_layout_says_are_refused() {
    let mut ptd = data();
    ptd.segments[0].pop();
    let (error, part, fault) = refusal(&ptd.bytes());
    assert_eq!(part, Part::NamedData(0));
    assert_eq!(fault, Fault::DataShort { key: "weight".into(), needed_bytes: 16, held_bytes: 15 });
    assert!(error.to_string().starts_with("<data 1>: "), "{error}");
}

#[test]
fn a_broken_data_file_is_refused_as_data_not_as_program() {
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Ptd));
    let cases: &[Case<'_>] = &[
        ("version", &|ptd| ptd.root.set(0, Field::U32(1))),
        ("named_data", &|ptd| ptd.root.remove(2)),
        ("segments", &|ptd| ptd.root.set(1, Field::Raw(u32::MAX))),
        ("key", &|ptd| ptd.row(0).remove(0)),
        ("segment index", &|ptd| ptd.row(0).set(1, Field::U32(2))),
        ("twice", &|ptd| ptd.row(0).set(0, Field::Text("state".into()))),
        ("kind", &|ptd| ptd.row(0).tab(2).set(0, Field::I8(77))),
        ("sizes", &|ptd| ptd.row(0).tab(2).remove(1)),
        ("order", &|ptd| ptd.row(0).tab(2).set(2, Field::Bytes(vec![0, 0]))),
        ("negative", &|ptd| ptd.row(0).tab(2).set(1, Field::I32s(vec![-1, 2]))),
        ("outside", &|ptd| {
            let row = table().with(0, Field::U64(1 << 40)).with(1, Field::U64(16));
            ptd.root.set(1, Field::Tables(vec![row.clone(), row]));
        }),
    ];
    for (name, change) in cases {
        let mut ptd = data();
        change(&mut ptd);
        let (error, ..) = refusal(&ptd.bytes());
        let kind = if *name == "version" { ProgramErrorKind::Unsupported } else { ExternalData };
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().starts_with("<data 1>"), "{name}: {error}");
        assert!(
            matches!(error.code(), ErrorCode::InvalidExternalData | ErrorCode::Internal),
            "{name}: {error}"
        );
    }
}

#[test]
fn what_is_no_data_file_is_named_for_what_it_is() {
    let cases: &[(&[u8], FileKind)] = &[
        (b"", FileKind::Empty),
        (b"PK\x03\x04zip", FileKind::Zip),
        (b"\x10\0\0\0BP08rest", FileKind::BundledProgram),
    ];
    for &(bytes, found) in cases {
        assert_eq!(refusal(bytes).2, Fault::NotADataFile { found });
    }
    let (error, _, fault) = refusal(&Pte::sample().bytes());
    assert_eq!(fault, Fault::NotADataFile { found: FileKind::Program });
    assert_eq!((error.kind(), error.code()), (ExternalData, ErrorCode::InvalidExternalData));
}

#[test]
fn a_missing_data_file_is_not_found() {
    let options = ProgramOptions::new().with_data_file("no_such.ptd");
    let error = Program::open(sample("cases/h13_external_weights.pte"), &options).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ProgramErrorKind::Io);
    assert!(error.to_string().contains("no_such.ptd"));
}

#[test]
fn a_data_file_is_refused_at_every_shorter_length() {
    let file = std::fs::read(sample("cases/h13_external_weights.weights.ptd")).unwrap();
    for len in 0..file.len() {
        refusal(&file[..len]);
    }
}
