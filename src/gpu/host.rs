//! What the gpu room cannot do itself, because it is the surface's affair: letting the event loop run, asking a browser for a feature
//! that wgpu has no name for, and remembering a few words between two starts.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use web_time::Duration;

/// A future that is ready after some time.
pub type Moment = Pin<Box<dyn Future<Output = ()>>>;

/// Ends a change that a surface made, when it is dropped.
pub struct Asking(Option<Box<dyn FnOnce()>>);

impl Asking {
    /// `end` undoes the change.
    pub fn until(end: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

/// What a surface does for the devices of its thread. Every method has a default that does nothing: a program may do without.
pub trait Host {
    /// So much time of the event loop, in a browser. `None`: there is none.
    fn moment(&self, _time: Duration) -> Option<Moment> {
        None
    }

    /// The same where a wait for the device needs it. `None`: waiting is enough.
    fn pause(&self, _pause: Duration) -> Option<Moment> {
        None
    }

    /// Adds a WebGPU feature to device requests made while the result lives, if the adapter has it.
    fn ask_for(&self, _feature: &'static str) -> Option<Asking> {
        None
    }

    /// What was kept under a key.
    fn recall(&self, _key: &str) -> Option<String> {
        None
    }

    /// Keeps words under a key, a file's name: whether they were kept. They may be forgotten at any time.
    fn remember(&self, _key: &str, _words: &str) -> bool {
        false
    }
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Says who helps the devices of this thread.
pub fn set_host(host: Rc<dyn Host>) {
    HOST.set(Some(host));
}

/// Who does.
pub(super) fn host() -> Option<Rc<dyn Host>> {
    HOST.with_borrow(Clone::clone)
}
