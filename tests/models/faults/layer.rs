//! The same of a layer, and of files that cannot be read when the device is back.

use super::sweep::{Sweep, Way};
use super::{ALL, ALLOCATIONS, folder, life, load_options, lose as lose_model, refused};
use crate::common;
use kitfox::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
use kitfox::format::{BoxFuture, BytesSource, Quant, Source, TensorType, convert};
use kitfox::gpu::inject::{Fault, arm, passed};
use kitfox::kernel::inputs;
use kitfox::session::{Device, DeviceChoice, ForgettingAttentionLayer, LayerOptions, Model};
use kitfox::{Error, Result};
use pollster::block_on;
use std::cell::Cell;
use std::rc::Rc;

fn layer_of(d: usize, bitnet: bool) -> Layer {
    let config = LayerConfig { hidden_size: d, num_heads: 4, mode: Mode::Decoder, bitnet };
    let [q_proj, k_proj, v_proj, out_proj] = [1, 2, 3, 4].map(|seed| inputs::floats(seed, d * d, 0.2));
    let (f_proj, f_bias) = (inputs::floats(5, 4 * d, 0.2), inputs::floats(6, 4, 1.0));
    let weights = LayerFloats {
        q_proj: &q_proj,
        k_proj: &k_proj,
        v_proj: &v_proj,
        f_proj: &f_proj,
        f_bias: Some(&f_bias),
        out_proj: &out_proj,
    };
    Layer::new(config, &weights).unwrap()
}

#[test]
fn a_layer_whose_device_is_lost_at_any_time_gives_the_same_rows() {
    if !common::gpu_expected() {
        return;
    }
    let lose = |layer: &ForgettingAttentionLayer| match layer.device() {
        Device::Gpu(executor) => executor.gpu().destroy(),
        Device::Cpu(_) => unreachable!("a GPU was asked for"),
    };
    for bitnet in [false, true] {
        let made = layer_of(64, bitnet);
        let options = LayerOptions { device: DeviceChoice::Gpu, max_tokens: Some(8) };
        let load = || block_on(ForgettingAttentionLayer::load(&made, options));
        let x = inputs::floats(9, 5 * 64, 1.0);
        let run = |layer: &mut ForgettingAttentionLayer| block_on(layer.run(&x));
        load().unwrap(); // finds out what the later ones recall
        arm(Fault::Lost, ALL, 0..0);
        let mut layer = load().unwrap();
        let of_load = passed();
        arm(Fault::Lost, ALL, 0..0);
        let want = run(&mut layer).unwrap();
        let of_run = passed();
        assert!(of_load > 20 && of_run >= 3, "{of_load}, {of_run}");
        for n in 0..of_run {
            let before = layer.recoveries();
            arm(Fault::Lost, ALL, n..n + 1);
            let ran = run(&mut layer);
            passed();
            assert_eq!((ran.unwrap(), layer.recoveries()), (want.clone(), before + 1), "lost at point {n} of {of_run}");
            arm(Fault::Lost, ALL, n..usize::MAX);
            let lost = run(&mut layer);
            passed();
            assert!(matches!(lost, Err(Error::DeviceLost(_))), "{lost:?}");
            assert_eq!(run(&mut layer).unwrap(), want, "after a time in which it was always lost, from point {n} on");
        }
        // Between two calls, with a new device that has no memory left: an error, and the next call works.
        let mut reached = true;
        let mut n = 0;
        while reached {
            lose(&layer);
            arm(Fault::OutOfMemory, ALLOCATIONS, n..n + 1);
            let ran = run(&mut layer);
            reached = passed() > n;
            match ran {
                Err(error) if reached => refused(&error),
                ran => assert_eq!(ran.unwrap(), want),
            }
            assert_eq!(run(&mut layer).unwrap(), want, "refused allocation {n}");
            n += 1;
        }
        assert!(n > 8, "{n} allocations of a recovery");
        for (fault, step) in [(Fault::OutOfMemory, 7), (Fault::Validation, 19)] {
            let sweep =
                Sweep::new(Way::Equipped, format!("a layer's load{}", if bitnet { ", BitNet" } else { "" }), fault, ALLOCATIONS);
            let sweep = sweep.at_each(Way::Equipped.choose(step, step, 1), &want, || {
                let loaded = load();
                passed();
                loaded.and_then(|mut layer| run(&mut layer))
            });
            assert!(sweep.there > 7, "{} allocations of a load", sweep.there);
        }
        let times = Way::Equipped.choose(4, 4, of_load);
        for n in (0..times).map(|time| time * of_load / times) {
            arm(Fault::Lost, ALL, n..n + 1);
            let loaded = load();
            passed();
            let mut layer = loaded.unwrap();
            assert_eq!(
                (run(&mut layer).unwrap(), layer.recoveries()),
                (want.clone(), 1),
                "lost at point {n} of a load's {of_load}"
            );
            arm(Fault::Lost, ALL, n..usize::MAX);
            let lost = load();
            passed();
            assert!(matches!(lost, Err(Error::DeviceLost(_))));
        }
    }
}

/// What is the matter with a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// It cannot be opened again.
    Gone,
    /// It cannot be read from this byte on.
    Breaks(u64),
    /// Other numbers stand from this byte on.
    Other(u64),
}

/// A file that is in trouble at times.
struct Troubled {
    file: BytesSource,
    trouble: Rc<Cell<Trouble>>,
}

impl Source for Troubled {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Option<u64> {
        self.file.len()
    }

    fn reopen(&mut self) -> BoxFuture<'_, Result<()>> {
        let gone = self.trouble.get() == Trouble::Gone;
        let io = || Error::Io { file: "model.gguf".into(), action: "open", reason: "a test".into() };
        Box::pin(async move { if gone { Err(io()) } else { Ok(()) } })
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        match self.trouble.get() {
            Trouble::Breaks(from) if at + n as u64 > from => {
                Box::pin(async { Err(Error::Io { file: "model.gguf".into(), action: "read", reason: "a test".into() }) })
            }
            Trouble::Other(from) => Box::pin(async move {
                let mut bytes = self.file.read(at, n).await?;
                bytes.iter_mut().zip(at..).filter(|(_, at)| *at >= from).for_each(|(byte, _)| *byte ^= 1);
                Ok(bytes)
            }),
            _ => self.file.read(at, n),
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_or_is_another_when_the_device_is_lost_is_one_error_until_it_is_back() {
    if !common::gpu_expected() {
        return;
    }
    let folder = folder("unreadable");
    let mut file = Vec::new();
    let mut checkpoint = block_on(kitfox::format::open(&folder)).unwrap();
    block_on(convert(&mut checkpoint, Quant::plain(TensorType::F32), &mut file, "model.gguf", &mut |_, _| ())).unwrap();
    let (half, trouble) = (file.len() as u64 / 2, Rc::new(Cell::new(Trouble::None)));
    let source = Troubled { file: BytesSource::new("model.gguf", file), trouble: trouble.clone() };
    let load = async { Model::load(kitfox::format::read(Box::new(source)).await?, load_options(), &mut |_| Ok(())).await };
    let mut model = block_on(load).unwrap();
    let want = block_on(life(&mut model)).unwrap();
    for of in [Trouble::Gone, Trouble::Breaks(half), Trouble::Other(half)] {
        lose_model(&model);
        trouble.set(of);
        for _ in 0..2 {
            let error = block_on(life(&mut model)).unwrap_err();
            let code = if matches!(of, Trouble::Other(_)) { "format" } else { "device-lost" };
            assert!(error.code() == code && error.to_string().contains("model.gguf"), "{of:?}: {error}");
        }
        let before = model.recoveries();
        trouble.set(Trouble::None);
        assert_eq!((block_on(life(&mut model)).unwrap(), model.recoveries()), (want.clone(), before + 1), "{of:?}");
    }
}
