#![forbid(unsafe_code)]
//! The numbers that ExecuTorch's runtime gives to failures, for those who know them by number.
//!
//! Deliberately absent: any decision. Arenite's own errors say what happened; the number is a footnote.

use core::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// The number that ExecuTorch's runtime gives to a failure.
        ///
        /// # Examples
        /// ```
        /// use arenite::program::ErrorCode;
        /// assert_eq!(ErrorCode::InvalidProgram.to_string(), "InvalidProgram (35)");
        /// assert_eq!(ErrorCode::InvalidProgram.number(), 0x23);
        /// ```
        ///
        /// # Source
        /// `executorch::runtime::Error`, version 1.5.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)+ }

        impl ErrorCode {
            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

codes! {
    /// Something that cannot happen did.
    Internal = 0x01,
    /// Not now.
    InvalidState = 0x02,
    /// No instruction is left.
    EndOfMethod = 0x03,
    /// Already there.
    AlreadyLoaded = 0x04,
    /// Legal, and not done here.
    NotSupported = 0x10,
    /// Legal, and not yet done.
    NotImplemented = 0x11,
    /// An argument is wrong.
    InvalidArgument = 0x12,
    /// A value is of the wrong kind.
    InvalidType = 0x13,
    /// No kernel of this name.
    OperatorMissing = 0x14,
    /// The kernel registry is full.
    RegistrationExceedingMaxKernels = 0x15,
    /// A kernel of this name is there.
    RegistrationAlreadyRegistered = 0x16,
    /// No such thing.
    NotFound = 0x20,
    /// Memory is missing.
    MemoryAllocationFailed = 0x21,
    /// A file cannot be reached.
    AccessFailed = 0x22,
    /// The program file is broken.
    InvalidProgram = 0x23,
    /// The data file is broken, missing or not of this program.
    InvalidExternalData = 0x24,
    /// A resource ran out.
    OutOfResources = 0x25,
    /// A delegate was made for another back end.
    DelegateInvalidCompatibility = 0x30,
    /// A delegate lacks memory.
    DelegateMemoryAllocationFailed = 0x31,
    /// A delegate's handle is wrong.
    DelegateInvalidHandle = 0x32,
}

impl ErrorCode {
    /// The number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}
