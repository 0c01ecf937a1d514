//! Memory of Python that the engine fills: a `bytes` object that nobody has seen yet, or what an
//! object lends by the buffer protocol. The only `unsafe` of this crate.
//!
//! The buffer protocol is part of the stable interface since Python 3.11 only. Python 3.10 has the
//! same functions and the same structure, so they are declared here.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use inrush::Place;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::mm::{Advice, madvise};

/// `Py_buffer` of `Include/pybuffer.h`, alike in all versions since 3.3.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

/// malloc(3) takes more than this from no heap but maps it, and unmaps it when it is freed
/// (M_MMAP_THRESHOLD of mallopt(3) never grows above it).
const HEAP_BYTES_MAX: usize = 32 << 20;

/// A huge page of most processors.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `PyBUF_WRITABLE`: contiguous bytes (PyBUF_SIMPLE) that may be written.
const WRITABLE: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// Who keeps the memory where it is.
enum Owner {
    /// A new object; nothing else refers to it.
    Bytes(Py<PyBytes>),
    /// What lends it by the buffer protocol, until this is dropped.
    Lender { _lent: Lent },
}

/// A view of another object's memory; dropping it gives the memory back.
struct Lent {
    view: Box<View>,
}

// SAFETY: a `Py` may go to other threads. A view is only touched with the interpreter attached
// (`lend`, and the drop); until then it is plain data that nobody looks at.
unsafe impl Send for Owner {}
// SAFETY: as above; a shared owner gives nobody access to the view.
unsafe impl Sync for Owner {}

/// Memory that the engine may fill, as long as a copy of this is there.
#[derive(Clone)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    length_bytes: usize,
    owner: Arc<Owner>,
}

// SAFETY: `base` points to memory that `owner` keeps in place, wherever it is used from; who writes
// there is said at `Piece`.
unsafe impl Send for Memory {}
// SAFETY: a shared reference gives its length and pieces; only those write, and each is one
// owner's.
unsafe impl Sync for Memory {}

impl Memory {
    /// A new `bytes` object of this length, whose bytes are not yet written.
    pub(crate) fn bytes(py: Python<'_>, length_bytes: usize) -> PyResult<Self> {
        let length = ffi::Py_ssize_t::try_from(length_bytes)
            .map_err(|_| PyMemoryError::new_err("more bytes than memory has"))?;
        // SAFETY: without a source, PyBytes_FromStringAndSize returns a new object with room for
        // `length` bytes, or null with an exception set. The interpreter is attached (`py`).
        let object = unsafe { ffi::PyBytes_FromStringAndSize(std::ptr::null(), length) };
        // SAFETY: it is null or a new reference that nobody else owns.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
        // SAFETY: it is a `bytes` object, so this is the address of its first byte.
        let base = unsafe { ffi::PyBytes_AsString(object.as_ptr()) };
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| PyErr::fetch(py))?;
        let bytes = object.cast_into::<PyBytes>()?;
        let memory = Self { base, length_bytes, owner: Arc::new(Owner::Bytes(bytes.unbind())) };
        memory.prefer_huge_pages();
        Ok(memory)
    }

    /// Asks the kernel for huge pages, where nothing was written yet: the first touch of an
    /// ordinary page costs about as much as its bytes. Memory that may be a part of the heap, and
    /// another's when it was freed, is left as it is. A kernel that has none, or allows none, is no
    /// reason to fail (madvise(2), MADV_HUGEPAGE).
    pub(crate) fn prefer_huge_pages(&self) {
        if self.length_bytes <= HEAP_BYTES_MAX {
            return;
        }
        let address = self.base.addr().get();
        let start = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        let length = (self.length_bytes - start) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let from = self.base.as_ptr().wrapping_add(start);
        // SAFETY: whole pages within memory that `owner` keeps, and the advice changes no byte.
        let _ = unsafe { madvise(from.cast(), length, Advice::LinuxHugepage) };
    }

    /// What an object lends for writing: contiguous bytes, which it leaves in place until
    /// [`Memory::finish`].
    pub(crate) fn lend(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(View {
            buf: std::ptr::null_mut(),
            obj: std::ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: the object is alive and the interpreter attached, as `object` shows; the view is
        // writable and large enough, and stays where it is (a box) until it is released.
        let refused = unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, WRITABLE) };
        if refused != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let length_bytes = usize::try_from(view.len).unwrap_or(0);
        // An empty one may have no address.
        let base = NonNull::new(view.buf.cast::<u8>()).unwrap_or(NonNull::dangling());
        Ok(Self { base, length_bytes, owner: Arc::new(Owner::Lender { _lent: Lent { view } }) })
    }

    /// How many bytes there are.
    pub(crate) const fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// A part of it, for one request; parts of one memory that are filled at the same time must not
    /// overlap.
    ///
    /// # Panics
    /// When the part is not within it.
    pub(crate) fn piece(&self, offset: usize, length_bytes: usize) -> Piece {
        let end = offset.checked_add(length_bytes).expect("no such memory");
        assert!(end <= self.length_bytes, "a piece beyond its memory");
        Piece { memory: self.clone(), offset, length_bytes }
    }

    /// Ends its use: the object, where it is a new one; a lender gets its memory back. `None` while
    /// pieces are left, too, which keep it.
    pub(crate) fn finish(self) -> Option<Py<PyBytes>> {
        match Arc::try_unwrap(self.owner) {
            Ok(Owner::Bytes(bytes)) => Some(bytes),
            Ok(Owner::Lender { .. }) | Err(_) => None,
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let view = &raw mut *self.view;
        // Without an interpreter there is nobody to give it back to.
        let _ = Python::try_attach(|_py| {
            // SAFETY: PyObject_GetBuffer filled the view, which has not moved since (a box), and
            // this is its only release; the interpreter is attached.
            unsafe { PyBuffer_Release(view) };
        });
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("length_bytes", &self.length_bytes).finish_non_exhaustive()
    }
}

/// Where one request's bytes go.
#[derive(Debug)]
pub(crate) struct Piece {
    memory: Memory,
    offset: usize,
    length_bytes: usize,
}

impl Piece {
    /// How many bytes there are.
    pub(crate) const fn length_bytes(&self) -> u64 {
        self.length_bytes as u64
    }
}

// SAFETY: `piece` checked that the piece is within the memory, whose owner keeps it in place
// wherever the piece goes: a `bytes` object does not move, a lender may not before its view is
// released. It holds some value, for Python's allocator or the lender made it. Pieces of one read
// do not overlap; a `bytes` object has been shown to nobody. That no other read has a part of lent
// memory, and that nobody else uses it meanwhile, is up to who lends it (`Client.read_into` says
// so), as with `readinto` of every file without the interpreter's lock.
unsafe impl Place for Piece {
    fn span(&mut self) -> NonNull<[u8]> {
        // SAFETY: `add` needs the result to stay within the memory (above).
        let base = unsafe { self.memory.base.add(self.offset) };
        NonNull::slice_from_raw_parts(base, self.length_bytes)
    }
}
