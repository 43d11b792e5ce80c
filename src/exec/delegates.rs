#![forbid(unsafe_code)]
//! The delegates of a method, from the file to ready to run.
//!
//! ```text
//!   Payloads ─► prepare the first, each on a thread ──┐
//!       plan checked, memory taken, meanwhile         ├─► load
//! ```
//!
//! Reading and hashing code takes longer than all else that loading a method is. Deliberately absent: what a delegate
//! makes of its payload; see [`crate::delegate`].

use super::error::LoadError;
use super::load::LoadOptions;
use super::planned::Planned;
use crate::delegate::{Delegate, DelegateLoad, DelegatePayload, LoadedDelegate, NamedData, Prepared};
use crate::program::{Instruction, MethodPlan, Program, Storage};
use crate::space::SpaceId;
use crate::value::Span;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// The most delegates that are prepared ahead: each may copy its code, and a file may name one code any number of times.
const AHEAD_MAX: usize = 8;

/// What the file holds for the delegates of one method.
pub(super) struct Payloads<'a> {
    program: ProgramData<'a>,
    plan: &'a MethodPlan,
    options: &'a LoadOptions,
    /// Per delegate, its compile options and the space of its arguments.
    each: Vec<(CompileSpecs<'a>, SpaceId)>,
}

type CompileSpecs<'a> = Vec<(&'a str, &'a [u8])>;

/// A delegate that may be being prepared.
pub(super) struct Coming<'a> {
    backend: &'a dyn Delegate,
    payload: DelegatePayload<'a>,
    prepared: Option<ScopedJoinHandle<'a, Prepared>>,
}

impl<'a> Payloads<'a> {
    /// Of a method whose planned buffers are in these spaces.
    pub(super) fn new(
        program: &'a Program,
        plan: &'a MethodPlan,
        options: &'a LoadOptions,
        spaces: &[SpaceId],
    ) -> Self {
        let mut payloads = Self { program: ProgramData(program), plan, options, each: Vec::new() };
        for (index, spec) in plan.delegates.iter().enumerate() {
            let specs = spec.compile_specs.iter();
            let specs = specs.map(|spec| (&*spec.key, program.data(spec.value))).collect();
            payloads.each.push((specs, payloads.space_of(payloads.args(index).unwrap_or_default(), spaces)));
        }
        payloads
    }

    /// The arguments of the first call of a delegate.
    fn args(&self, index: usize) -> Option<Span> {
        self.plan.instructions.iter().find_map(|instruction| match *instruction {
            Instruction::Delegate { delegate, args } if delegate as usize == index => Some(args),
            _ => None,
        })
    }

    /// The space of the first planned argument of a delegate; the host where none is planned.
    fn space_of(&self, args: Span, spaces: &[SpaceId]) -> SpaceId {
        args.of(&self.plan.lists.ids)
            .iter()
            .find_map(|&id| match self.plan.tensor(id)?.storage {
                Storage::Planned { buffer, .. } => Some(spaces[buffer as usize]),
                Storage::Supplied => self.options.arenas.resolve(self.plan.tensor(id)?.space).ok(),
                Storage::Constant(_) | Storage::Missing => None,
            })
            .unwrap_or(SpaceId::HOST)
    }

    /// Begins what can be done before there is memory. Every delegate was found to be registered.
    pub(super) fn prepare<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Vec<Coming<'scope>> {
        let delegates = self.plan.delegates.iter().zip(&self.each).enumerate();
        let coming = delegates.filter_map(|(index, (spec, (compile_specs, space)))| {
            let backend = &**self.options.delegates.get(&spec.id)?;
            let payload = DelegatePayload {
                method: &self.plan.name,
                index,
                processed: self.program.0.data(spec.processed),
                compile_specs,
                named: &self.program,
                args_len: self.args(index).map_or(0, |args| args.len as usize),
                space: *space,
            };
            // Where there is no thread to be had, loading does it all.
            let work = (index < AHEAD_MAX).then(|| backend.prepare(&payload)).flatten();
            let prepared = work.and_then(|work| Builder::new().spawn_scoped(scope, work).ok());
            Some(Coming { backend, payload, prepared })
        });
        coming.collect()
    }

    /// Makes the delegates ready to run, all or none.
    pub(super) fn load(
        &self,
        coming: Vec<Coming<'_>>,
        sharing: usize,
        planned: &mut Planned,
    ) -> Result<Vec<Box<dyn LoadedDelegate>>, LoadError> {
        let load = |Coming { backend, payload, prepared }| {
            let mut load = DelegateLoad {
                payload,
                prepared,
                arenas: &self.options.arenas,
                queue: planned.holdings.queue(payload.space),
                sharing,
                native_code: self.options.delegates.native_code(),
            };
            backend.load(&mut load).map_err(|error| LoadError::Delegate {
                method: self.plan.name.to_string(),
                index: payload.index,
                id: backend.id().into(),
                reason: error.to_string(),
            })
        };
        coming.into_iter().map(load).collect()
    }
}

/// The named data of a program, as delegates read it.
struct ProgramData<'a>(&'a Program);

impl NamedData for ProgramData<'_> {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.named(key)
    }

    fn sources(&self) -> String {
        let mut sources = vec![self.0.label()];
        sources.extend(self.0.named_data().map(|blob| blob.file));
        sources.dedup();
        sources.join(", ")
    }
}
