//! Sample programs, and what must hold of any program that was opened.

use arenite::program::{Instruction, Program, ProgramError, ProgramOptions, Storage};
use arenite::value::{Value, ValueId};
use std::path::PathBuf;

/// A file under `tests/data`.
pub fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub fn open(bytes: &[u8]) -> Result<Program, ProgramError> {
    Program::from_bytes(bytes, &ProgramOptions::new())
}

/// Visits everything in a program that was opened and panics where an index or extent is not in range: the
/// body of the fuzz target.
pub fn visit(program: &Program) {
    for method in program.methods() {
        let len = method.values.len();
        let in_range = |id: ValueId| assert!(id.index() < len, "value {id:?} of {len}");
        for &value in &method.values {
            match value {
                Value::Tensor(index) => assert!((index as usize) < method.tensors.len()),
                Value::IntList(span) => {
                    for &id in span.of(&method.lists.ids) {
                        assert!(matches!(method.value(id), Value::Int(_)));
                    }
                }
                Value::TensorList(span) => {
                    for &id in span.of(&method.lists.ids) {
                        assert!(method.tensor(id).is_some());
                    }
                }
                _ => {}
            }
        }
        for spec in &method.tensors {
            let elements = method.sizes(spec).iter().product::<usize>();
            assert_eq!(spec.size_bytes, elements * spec.dtype.size_bytes());
            assert_eq!(method.sizes(spec).len(), method.order(spec).len());
            match spec.storage {
                Storage::Constant(data) => {
                    let bytes = program.data(data);
                    assert_eq!(bytes.len(), spec.size_bytes);
                    assert!(
                        bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(spec.dtype.size_bytes())
                    );
                }
                Storage::Planned { buffer, offset_bytes, initial } => {
                    let buffer = method.buffers[buffer as usize];
                    assert!(offset_bytes + spec.size_bytes <= buffer.size_bytes);
                    assert_eq!(spec.space, buffer.space);
                    if let Some(initial) = initial {
                        assert_eq!(program.data(initial).len(), spec.size_bytes);
                    }
                }
                _ => {}
            }
        }
        method.inputs.iter().chain(&method.outputs).for_each(|&id| in_range(id));
        assert_eq!(method.describe_inputs().count(), method.inputs.len());
        for chain in &method.chains {
            for step in chain.of(&method.instructions) {
                match *step {
                    Instruction::Kernel { operator, args } => {
                        assert!((operator as usize) < method.operators.len());
                        args.of(&method.lists.ids).iter().for_each(|&id| in_range(id));
                    }
                    Instruction::Delegate { delegate, args } => {
                        assert!((delegate as usize) < method.delegates.len());
                        args.of(&method.lists.ids).iter().for_each(|&id| in_range(id));
                    }
                    Instruction::Move { from, to } => [from, to].into_iter().for_each(in_range),
                    Instruction::JumpFalse { condition, target } => {
                        in_range(condition);
                        assert!(target <= chain.len);
                    }
                    Instruction::Free { value } => in_range(value),
                }
            }
        }
        for delegate in &method.delegates {
            assert_eq!(program.data(delegate.processed).len(), delegate.processed.size_bytes());
        }
        assert_eq!(method.operator_names().is_empty(), method.operators.is_empty());
    }
    assert!(program.constants().size_bytes <= program.size_bytes());
    program.named_data().for_each(|blob| assert_eq!(program.named(blob.key).unwrap().len(), blob.size_bytes));
}

/// The body of the fuzz target: any bytes are a program or an error that can be told.
pub fn open_and_visit(bytes: &[u8]) -> bool {
    match open(bytes) {
        Ok(program) => {
            visit(&program);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.code().number() > 0);
            false
        }
    }
}

/// A small generator of numbers, the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // SplitMix64, by Steele, Lea and Flood.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}
