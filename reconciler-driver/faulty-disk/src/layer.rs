//! The table of C functions: SQLite's default file layer, in which opening a file puts our own write and sync in
//! front of the original ones. Everything else, locks and shared memory included, is the original.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use rusqlite::ffi;

use crate::{Disk, Fault, Kind, NAME, Part};

/// What is kept behind SQLite's own part of an open file.
#[repr(C)]
struct Behind {
    disk: &'static Disk,
    part: Part,
    methods: &'static Methods,
}

/// The original layer.
struct Original {
    vfs: *mut ffi::sqlite3_vfs,
    /// Where [`Behind`] begins in an open file.
    offset: usize,
}

// SAFETY: SQLite's default layer is registered for the whole life of the process and is never changed; it may be
// called from any thread.
unsafe impl Send for Original {}
// SAFETY: as above.
unsafe impl Sync for Original {}

/// The original functions of a file, and ours.
struct Methods {
    original: ffi::sqlite3_io_methods,
    ours: ffi::sqlite3_io_methods,
}

static ORIGINAL: OnceLock<Original> = OnceLock::new();
/// A database is locked and its log is not, so that SQLite has a table for each.
static OF_MAIN: OnceLock<Methods> = OnceLock::new();
static OF_LOG: OnceLock<Methods> = OnceLock::new();
static DISKS: Mutex<Vec<&'static Disk>> = Mutex::new(Vec::new());

/// Makes the layer known to SQLite, once.
pub(crate) fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: asking for the default layer; it stays where it is for ever.
        let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        // SAFETY: SQLite always has a default layer, and it is a plain table.
        let mut ours = unsafe { *vfs };
        let offset = usize::try_from(ours.szOsFile).unwrap_or(0).next_multiple_of(align_of::<Behind>());
        ORIGINAL.get_or_init(|| Original { vfs, offset });
        ours.szOsFile = c_int::try_from(offset + size_of::<Behind>()).unwrap_or(c_int::MAX);
        ours.pNext = null_mut();
        ours.zName = NAME.as_ptr();
        ours.xOpen = Some(open);
        // SAFETY: the table is leaked, as SQLite keeps a pointer to it.
        unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 0) };
    });
}

/// Remembers a disk, so that opening its files finds it.
pub(crate) fn enter(disk: Disk) -> &'static Disk {
    let disk: &'static Disk = Box::leak(Box::new(disk));
    DISKS.lock().unwrap_or_else(PoisonError::into_inner).push(disk);
    disk
}

/// Whose file this is.
fn owner(path: &str) -> Option<(&'static Disk, Part)> {
    let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
    // The latest of a path is meant.
    disks.iter().rev().find_map(|disk| {
        if Path::new(path) == disk.path {
            return Some((*disk, Part::Main));
        }
        let log = path.strip_suffix("-wal")?;
        (Path::new(log) == disk.path).then_some((*disk, Part::Log))
    })
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(original) = ORIGINAL.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: the original layer's own function, given its own table; a file of ours begins as one of its.
    let Some(open) = (unsafe { (*original.vfs).xOpen }) else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: as above, with SQLite's own arguments.
    let done = unsafe { open(original.vfs, name, file, flags, out_flags) };
    if done != ffi::SQLITE_OK || name.is_null() {
        return done;
    }
    // SAFETY: SQLite's names end with a zero.
    let path = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if let Some((disk, part)) = owner(&path) {
        let methods = match part {
            Part::Main => &OF_MAIN,
            Part::Log => &OF_LOG,
        };
        // SAFETY: an open file has its functions, and SQLite gave us room for `Behind` after the original's part.
        unsafe {
            let methods = methods.get_or_init(|| {
                let original = *(*file).pMethods;
                let ours = ffi::sqlite3_io_methods { xWrite: Some(write), xSync: Some(sync), ..original };
                Methods { original, ours }
            });
            file.byte_add(original.offset).cast::<Behind>().write(Behind { disk, part, methods });
            (*file).pMethods = &raw const methods.ours;
        }
    }
    done
}

/// What is behind a file that `open` gave our functions.
///
/// # Safety
/// The file must be one of those.
unsafe fn behind(file: *mut ffi::sqlite3_file) -> &'static Behind {
    let offset = ORIGINAL.get().map_or(0, |original| original.offset);
    // SAFETY: `open` wrote it there, and the file is open for as long as its functions are called.
    unsafe { &*file.byte_add(offset).cast::<Behind>() }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: only files of ours have this function.
    let Behind { disk, part, methods } = unsafe { behind(file) };
    let Some(original) = methods.original.xWrite else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    match disk.meet(Kind::Write, *part) {
        // SAFETY: the original function with SQLite's own arguments.
        None => unsafe { original(file, bytes, count, at) },
        Some(Fault::Torn) => {
            // SAFETY: as above; half of the bytes are there too.
            unsafe { original(file, bytes, count / 2, at) };
            ffi::SQLITE_IOERR_WRITE
        }
        Some(Fault::NoSpace | Fault::SyncFails) => ffi::SQLITE_FULL,
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: only files of ours have this function.
    let Behind { disk, part, methods } = unsafe { behind(file) };
    let Some(original) = methods.original.xSync else {
        return ffi::SQLITE_IOERR_FSYNC;
    };
    match disk.meet(Kind::Sync, *part) {
        // SAFETY: the original function with SQLite's own arguments.
        None => unsafe { original(file, flags) },
        Some(_) => ffi::SQLITE_IOERR_FSYNC,
    }
}
