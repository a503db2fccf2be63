//! What a browser's event loop and its WebGPU do for the gpu room.

use super::set;
use crate::gpu::{Asking, Host, Moment};
use js_sys::{Array, Function, Object, Promise, Proxy, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_time::Duration;

/// The page or worker that this module runs in.
pub struct Browser {
    /// Whether it sees the end of the GPU's work late unless something is submitted: Firefox (bug 1870699), which nothing but its name
    /// tells. Elsewhere such a submission is of no use, and is most of what a token costs this thread.
    looks_late: bool,
    /// `recall` and `remember` of the page, where it can keep something.
    memory: Option<(Function, Function)>,
}

impl Browser {
    /// This one.
    pub fn here() -> Self {
        let name = get(&js_sys::global(), "navigator").and_then(|navigator| get(&navigator, "userAgent")?.as_string());
        Self { looks_late: name.is_some_and(|name| name.contains("Firefox/")), memory: None }
    }

    /// With a memory.
    pub fn keeping(self, recall: Function, remember: Function) -> Self {
        Self { memory: Some((recall, remember)), ..self }
    }
}

impl Host for Browser {
    /// A timer of the event loop.
    fn moment(&self, time: Duration) -> Option<Moment> {
        let ms = time.as_millis() as u32;
        let timer = Promise::new(&mut |resolve, _| {
            let set_timeout = Reflect::get(&js_sys::global(), &"setTimeout".into());
            let set = set_timeout
                .and_then(|set| set.dyn_into::<Function>())
                .and_then(|set| set.call2(&JsValue::NULL, &resolve, &ms.into()));
            set.unwrap_or_else(|_| unreachable!("every page and worker has setTimeout"));
        });
        Some(Box::pin(async move {
            // A timer does not fail.
            let _ = JsFuture::from(timer).await;
        }))
    }

    fn pause(&self, pause: Duration) -> Option<Moment> {
        if self.looks_late { self.moment(pause) } else { None }
    }

    fn recall(&self, key: &str) -> Option<String> {
        let (recall, _) = self.memory.as_ref()?;
        recall.call1(&JsValue::NULL, &key.into()).ok()?.as_string()
    }

    fn remember(&self, key: &str, words: &str) -> bool {
        let kept = |(_, remember): &(Function, Function)| remember.call2(&JsValue::NULL, &key.into(), &words.into()).is_ok();
        self.memory.as_ref().is_some_and(kept)
    }

    /// wgpu builds the descriptor of `requestDevice` from its own features only. So while it does, a proxy stands for that method of
    /// every adapter, and adds the feature where the adapter has it.
    fn ask_for(&self, feature: &'static str) -> Option<Asking> {
        let adapters = get(&get(&js_sys::global(), "GPUAdapter")?, "prototype")?;
        let original = get(&adapters, METHOD)?;
        // The trap of a proxy is told `this`, which a closure is not.
        let apply = Closure::<dyn Fn(Function, JsValue, Array) -> Result<JsValue, JsValue>>::new(
            move |method: Function, adapter: JsValue, arguments: Array| {
                add_feature(&adapter, &arguments.get(0), feature);
                Reflect::apply(&method, &adapter, &arguments)
            },
        );
        let handler = Object::new();
        set(&handler, "apply", apply.as_ref().clone());
        let proxy = Proxy::new(&original, &handler);
        let done = Reflect::set(&adapters, &METHOD.into(), &proxy);
        done.ok().filter(|done| *done)?;
        Some(Asking::until(move || {
            // It could be replaced, so it can be put back.
            let _ = Reflect::set(&adapters, &METHOD.into(), &original);
            drop(apply);
        }))
    }
}

const METHOD: &str = "requestDevice";

/// Names the feature in a device descriptor, if the adapter has it.
fn add_feature(adapter: &JsValue, descriptor: &JsValue, feature: &str) {
    let has = |features: JsValue| get(&features, "has")?.dyn_into::<Function>().ok()?.call1(&features, &feature.into()).ok();
    if get(adapter, "features").and_then(has).is_some_and(|has| has.is_truthy())
        && let Some(wanted) = get(descriptor, "requiredFeatures").and_then(|wanted| wanted.dyn_into::<Array>().ok())
    {
        wanted.push(&feature.into());
    }
}

/// A property that is there.
fn get(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &name.into()).ok().filter(|value| !value.is_undefined())
}
