//! Binding (to come).
