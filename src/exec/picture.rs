#![forbid(unsafe_code)]
//! A method's memory plan as a picture: instructions across, bytes up, a panel a memory id.
//!
//! Deliberately absent: memory and kernels that run; a plan is drawn of a file alone.

use super::error::LoadError;
use super::lifetimes::{BufferRole, LiveBuffer, live_buffers};
use super::load::{LoadOptions, find_kernels};
use super::placement::{Placement, Replan};
use super::state::Roles;
use crate::plan::svg::{Picture, Role};
use crate::plan::{BufferSpec, Lifespan, Plan, Problem, SpaceSpec};
use crate::program::{MethodPlan, Program};
use crate::tensor::shape::display_sizes;

/// The planned buffers of a method, when each is alive, and where each lies.
///
/// # Examples
/// ```no_run
/// use arenite::exec::{LoadOptions, PlanPicture, Replan};
/// use arenite::program::{Program, ProgramOptions};
/// let program = Program::open("model.pte", &ProgramOptions::default())?;
/// let picture = PlanPicture::of(&program, "forward", &LoadOptions::default(), Replan::File)?;
/// std::fs::write("plan.svg", picture.to_svg())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlanPicture {
    title: String,
    problem: Problem,
    plan: Plan,
    roles: Vec<Role>,
    labels: Vec<String>,
    panels: Vec<String>,
}

impl PlanPicture {
    /// The plan of method `name`: the file's, or one made anew.
    ///
    /// # Errors
    /// [`LoadError::CannotDraw`] where what is alive when depends on the run; [`LoadError::MissingOperators`], since
    /// without them it is not known either; where there is no such method.
    pub fn of(
        program: &Program,
        name: &str,
        options: &LoadOptions,
        replan: Replan,
    ) -> Result<Self, LoadError> {
        let plan = program.method(name)?;
        let kernels = find_kernels(plan, options)?;
        let roles = Roles::of(plan, &kernels);
        let live = live_buffers(plan, &kernels, &roles).ok_or_else(|| LoadError::CannotDraw {
            method: name.into(),
            reason: "it has jumps or moves, so that what is alive when depends on the run".into(),
        })?;
        let spaces: Vec<_> = plan
            .buffers
            .iter()
            .map(|buffer| options.arenas.resolve(buffer.space).unwrap_or(buffer.space))
            .collect();
        let placement = Placement::of_file(plan, &spaces).replanned(plan, &kernels, &roles, replan)?;
        let how = match replan {
            Replan::File => "as in the file",
            Replan::Greedy => "planned anew, by size",
            Replan::Best => "planned anew, the best found",
        };
        Ok(Self::new(format!("{name} of {}, {how}", program.file_name()), plan, &placement, &live))
    }

    fn new(title: String, plan: &MethodPlan, placement: &Placement, live: &[LiveBuffer]) -> Self {
        let ids: Vec<usize> =
            (1..placement.buffers.len()).filter(|&id| placement.buffers[id].1 > 0).collect();
        let panel = |id: usize| {
            let (space, size_bytes) = placement.buffers[id];
            format!("arena {id}: {size_bytes} bytes in {space}")
        };
        let (mut specs, mut offsets, mut roles, mut labels) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for buffer in live {
            let Some(&tensor) = buffer.tensors.first() else { continue };
            let Some((id, offset)) = placement.place(tensor) else { continue };
            let Some(space) = ids.iter().position(|&known| known == id) else { continue };
            let lifespan = Lifespan::new(buffer.first, buffer.last);
            let space = u32::try_from(space).unwrap_or(u32::MAX);
            specs.push(BufferSpec::new(buffer.size_bytes as u64, lifespan).in_space(space));
            offsets.push(offset as u64);
            roles.push(match buffer.role {
                BufferRole::Input => Role::Input,
                BufferRole::Output => Role::Output,
                BufferRole::State => Role::State,
                BufferRole::Temp => Role::Scratch,
            });
            let spec = &plan.tensors[tensor];
            let name = plan.tensor_name(spec).map_or_else(|| format!("tensor {tensor}"), str::to_owned);
            labels.push(format!("{name} {} {}", spec.dtype, display_sizes(plan.sizes(spec))));
        }
        let capacity = |&id: &usize| SpaceSpec::with_capacity(placement.buffers[id].1 as u64);
        let problem = Problem::new(specs).with_spaces(ids.iter().map(capacity).collect());
        let drawn = Plan::from_offsets(&problem, offsets);
        Self { title, problem, plan: drawn, roles, labels, panels: ids.into_iter().map(panel).collect() }
    }

    fn picture(&self) -> Picture<'_> {
        Picture::new(&self.problem, &self.plan)
            .title(self.title.as_str())
            .label(|buffer| self.labels[buffer].clone())
            .role(|buffer| self.roles[buffer])
            .space_name(|space| self.panels[space].clone())
    }

    /// A file that stands alone.
    pub fn to_svg(&self) -> String {
        self.picture().to_svg()
    }

    /// Letters on a grid of this many columns, and rows a panel.
    pub fn to_text(&self, columns: usize, rows: usize) -> String {
        self.picture().to_text(columns, rows)
    }

    /// Per memory id that holds anything: its name, its bytes, and the most bytes alive in it at once.
    pub fn panels(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let bounds = crate::plan::lower_bounds(&self.problem).unwrap_or_default();
        self.panels.iter().enumerate().map(move |(at, name)| {
            let capacity = self.problem.spaces[at].capacity_bytes.unwrap_or(0);
            (&**name, capacity, bounds.get(at).copied().unwrap_or(0))
        })
    }
}
