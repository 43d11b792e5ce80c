#![forbid(unsafe_code)]
//! One call of a delegate: its tensors by position, and the queue its device work goes to.
//!
//! Deliberately absent: which arguments are inputs. The delegate knows how many it takes.

use super::DelegateError;
use crate::space::Queue;
use crate::tensor::Tensor;
use crate::value::{Value, ValueId};

/// One call of a delegate: inputs first, then outputs, in the order of the instruction.
pub struct DelegateCall<'a> {
    values: &'a [Value],
    tensors: &'a mut [Tensor],
    args: &'a [ValueId],
    queue: Option<&'a mut (dyn Queue + 'a)>,
}

impl core::fmt::Debug for DelegateCall<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DelegateCall").field("args", &self.args).finish_non_exhaustive()
    }
}

impl<'a> DelegateCall<'a> {
    /// A call with these arguments over a method's values and tensors. `queue` is the queue of the space
    /// that the delegate was loaded for; `None` on the host.
    #[inline]
    pub fn new(
        values: &'a [Value],
        tensors: &'a mut [Tensor],
        args: &'a [ValueId],
        queue: Option<&'a mut (dyn Queue + 'a)>,
    ) -> Self {
        Self { values, tensors, args, queue }
    }

    /// How many arguments came.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether no arguments came.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    #[inline]
    fn tensor_index(&self, index: usize) -> Result<usize, DelegateError> {
        match self.args.get(index).and_then(|id| self.values.get(id.index())) {
            Some(&Value::Tensor(at)) if (at as usize) < self.tensors.len() => Ok(at as usize),
            other => Err(DelegateError::Argument { index, got: other.map_or("missing", Value::kind) }),
        }
    }

    /// The tensor of argument `index`.
    ///
    /// # Errors
    /// [`DelegateError::Argument`] where it is no tensor.
    #[inline]
    pub fn tensor(&self, index: usize) -> Result<&Tensor, DelegateError> {
        let at = self.tensor_index(index)?;
        Ok(&self.tensors[at])
    }

    /// The tensor of argument `index`, to resize it.
    ///
    /// # Errors
    /// [`DelegateError::Argument`] where it is no tensor.
    #[inline]
    pub fn tensor_mut(&mut self, index: usize) -> Result<&mut Tensor, DelegateError> {
        let at = self.tensor_index(index)?;
        Ok(&mut self.tensors[at])
    }

    /// Where device work goes.
    #[inline]
    pub fn queue(&mut self) -> Option<&mut (dyn Queue + 'a)> {
        self.queue.as_deref_mut()
    }
}
