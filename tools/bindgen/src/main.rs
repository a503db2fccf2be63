//! Generates the JavaScript glue for a wasm module: `bindgen IN.wasm OUT_DIR`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bindgen IN.wasm OUT_DIR".into());
    };
    wasm_bindgen_cli_support::Bindgen::new().input_path(input).web(true)?.typescript(true).generate(out)?;
    Ok(())
}
