//! One value from a callback to a future. The mutex is there because native wgpu may call back from another thread; no crate is
//! worth these few lines.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct Shared<T> {
    value: Option<T>,
    closed: bool,
    waker: Option<Waker>,
}

type Cell<T> = Arc<Mutex<Shared<T>>>;

fn lock<T>(cell: &Cell<T>) -> MutexGuard<'_, Shared<T>> {
    // Every section below leaves the value whole, so a panic elsewhere cannot have broken it.
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The callback's end. Dropped unused, it resolves the future with `None`: a callback that never comes must not hang a caller.
#[derive(Debug)]
pub(super) struct Sender<T>(Cell<T>);

/// The future's end: the value, or `None` when the sender was dropped without one.
#[derive(Debug)]
pub(super) struct Receiver<T>(Cell<T>);

/// Both ends.
pub(super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let cell = Arc::new(Mutex::new(Shared { value: None, closed: false, waker: None }));
    (Sender(Arc::clone(&cell)), Receiver(cell))
}

impl<T> Sender<T> {
    /// Hands the value over.
    pub(super) fn send(self, value: T) {
        lock(&self.0).value = Some(value);
        // Dropping `self` wakes the receiver.
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.closed = true;
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut shared = lock(&self.0);
        if shared.closed {
            return Poll::Ready(shared.value.take());
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
