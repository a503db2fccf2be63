//! Tensor names: GGUF's outside of this room, and what the two families of published checkpoints call them.
//!
//! The first family is the authors' own code (`fgate_proj`, `ogate_proj`, shifts), the second flash-linear-attention (`f_proj`,
//! `g_proj`, biases on q, k and v). No name means different things in the two, so one table serves both.

/// GGUF's name, then the names in Hugging Face checkpoints, outside the layers.
const GLOBAL: [(&str, &[&str]); 3] = [
    ("token_embd.weight", &["model.embeddings.weight"]),
    ("output_norm.weight", &["model.norm.weight"]),
    ("output.weight", &["lm_head.weight"]),
];

/// The same inside layer N: `blk.N.` before GGUF's name, `model.layers.N.` before the others.
const LAYER: [(&str, &[&str]); 20] = [
    ("attn_norm.weight", &["attn_norm.weight"]),
    ("attn_q.weight", &["attn.q_proj.weight"]),
    ("attn_q.bias", &["attn.q_proj.bias"]),
    ("attn_k.weight", &["attn.k_proj.weight", "attn.k_proj.linear.weight"]),
    ("attn_k.bias", &["attn.k_proj.bias"]),
    ("attn_v.weight", &["attn.v_proj.weight", "attn.v_proj.linear.weight"]),
    ("attn_v.bias", &["attn.v_proj.bias"]),
    ("attn_gate.weight", &["attn.ogate_proj.weight", "attn.g_proj.weight"]),
    ("attn_output.weight", &["attn.o_proj.weight"]),
    ("attn_q_norm.weight", &["attn.q_norm.weight"]),
    ("attn_k_norm.weight", &["attn.k_norm.weight"]),
    ("attn_sub_norm.weight", &["attn.output_norm.weight"]),
    ("attn_fgate.weight", &["attn.fgate_proj.weight", "attn.f_proj.weight"]),
    ("attn_fgate.bias", &["attn.fgate_proj.bias", "attn.f_proj.bias", "attn.fgate_bias"]),
    ("attn_k_shift.weight", &["attn.k_proj.shift_proj.weight"]),
    ("attn_v_shift.weight", &["attn.v_proj.shift_proj.weight"]),
    ("ffn_norm.weight", &["mlp_norm.weight"]),
    ("ffn_gate.weight", &["mlp.gate_proj.weight"]),
    ("ffn_up.weight", &["mlp.up_proj.weight"]),
    ("ffn_down.weight", &["mlp.down_proj.weight"]),
];

/// The matrices of the linear layers, the embedding and the head: what quantization is for. Norms, biases and the narrow gates
/// (one row per head) weigh little and matter much.
const MATRICES: [&str; 8] = [
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_gate.weight",
    "attn_output.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
];

/// `prefix` N `.` rest: N and the rest. N is written without leading zeros.
fn layer<'a>(name: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    let (n, rest) = name.strip_prefix(prefix)?.split_once('.')?;
    let plain = !n.is_empty() && n.len() <= 6 && n.bytes().all(|b| b.is_ascii_digit()) && (n == "0" || !n.starts_with('0'));
    plain.then_some((n, rest))
}

/// GGUF's name of a Hugging Face tensor. The stacked `mlp.gate_proj` of the authors' code gives `ffn_gate`; who reads it splits
/// it.
pub fn to_canonical(name: &str) -> Option<String> {
    let find = |table: &[(&str, &[&str])], name: &str| {
        table.iter().find(|(_, others)| others.contains(&name)).map(|(canonical, _)| (*canonical).to_owned())
    };
    match layer(name, "model.layers.") {
        Some((n, rest)) => find(&LAYER, rest).map(|canonical| format!("blk.{n}.{canonical}")),
        None => find(&GLOBAL, name),
    }
}

/// Whether quantization is for this tensor.
pub fn is_matrix(canonical: &str) -> bool {
    match layer(canonical, "blk.") {
        Some((_, rest)) => MATRICES.contains(&rest),
        None => ["token_embd.weight", "output.weight"].contains(&canonical),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_one_tensor() {
        let mut all = std::collections::HashSet::new();
        let layers = LAYER.iter().map(|(name, others)| (format!("blk.11.{name}"), *others, "model.layers.11."));
        for (canonical, others, prefix) in layers.chain(GLOBAL.iter().map(|(name, others)| ((*name).into(), *others, ""))) {
            for other in others {
                let name = format!("{prefix}{other}");
                assert_eq!(to_canonical(&name).as_deref(), Some(canonical.as_str()));
                assert!(all.insert(name), "{other} means two things");
            }
        }
        for name in ["", "blk.", "model.layers.01.attn_norm.weight", "model.layers..attn_norm.weight", "model.layers.1", "x"] {
            assert_eq!(to_canonical(name), None, "{name}");
        }
    }

    #[test]
    fn matrices_are_names_of_the_table() {
        assert!(MATRICES.iter().all(|matrix| LAYER.iter().any(|(name, _)| name == matrix)));
        assert!(is_matrix("token_embd.weight") && is_matrix("blk.3.ffn_up.weight"));
        assert!(!is_matrix("blk.3.attn_fgate.weight") && !is_matrix("output_norm.weight"));
    }
}
