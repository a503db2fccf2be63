//! What the command line does for devices: it keeps what was found out about an adapter in the user's cache directory.

use super::input;
use kitfox::gpu::{Host, set_host};
use std::env::var_os;
use std::path::PathBuf;
use std::rc::Rc;

/// A folder of small files.
struct CacheFolder(PathBuf);

impl Host for CacheFolder {
    fn recall(&self, key: &str) -> Option<String> {
        input::text(&self.0.join(key), input::MAX_KEPT).ok()
    }

    fn remember(&self, key: &str, words: &str) -> bool {
        // Renamed into place, so that another run never reads half of it.
        let unfinished = self.0.join(format!("{key}.{}", std::process::id()));
        let written = std::fs::create_dir_all(&self.0).and_then(|()| std::fs::write(&unfinished, words));
        written.and_then(|()| std::fs::rename(&unfinished, self.0.join(key))).is_ok()
    }
}

/// Sets it up for this thread's devices. A user without a cache directory goes without.
pub fn set_up() {
    let absolute = |name| var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("LOCALAPPDATA"))
        .or_else(|| absolute("HOME").map(|home| home.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" })));
    if let Some(base) = base {
        set_host(Rc::new(CacheFolder(base.join("kitfox"))));
    }
}
