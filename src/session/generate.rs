//! One generation: a prompt through the model in chunks, then token by token through sampler, detokenizer and stop strings to text.
//!
//! Every await is one call of the model, and between two calls the generation can be dropped: the next one starts by resetting the
//! model. On the CPU the model is asked for a token only when that token is wanted. A GPU draws tokens itself, some ahead of what
//! was handed out; at the end the model stands where it would stand without those, see [`super::draw`].

use super::Model;
use super::draw::check_in_flight;
use super::sampler::{Sampler, SamplerOptions};
use super::score::nll;
use crate::text::TextStream;
use crate::{Error, Result};

/// What needs the tokenizer, for [`Error::NoTokenizer`].
const ACTION: &str = "generate";

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// Tokens at most; 0 runs the prompt only.
    pub max_tokens: usize,
    /// How tokens are drawn.
    pub sampler: SamplerOptions,
    /// Texts that end the generation. They are not part of its text.
    pub stop: Vec<String>,
    /// Goes on after the end-of-text token, which then counts as a token without text.
    pub ignore_eos: bool,
    /// Tokens that a GPU draws between two reads, 1 to [`MAX_IN_FLIGHT`](super::draw::MAX_IN_FLIGHT); `None`: as many as pay. The
    /// text does not depend on it.
    pub in_flight: Option<usize>,
    /// Each piece has the probabilities of its tokens. A GPU then hands over the logits of every token, and the host draws from them.
    pub logprobs: bool,
}

impl GenerateOptions {
    /// What can be said without a model.
    ///
    /// # Errors
    /// [`Error::Argument`] for the first option that is out of its range.
    pub fn check(&self) -> Result<()> {
        self.start().map(drop)
    }

    /// What draws the tokens, and what makes text of them.
    fn start(&self) -> Result<(Sampler, TextStream)> {
        let sampler = Sampler::new(self.sampler.clone())?;
        check_in_flight(self.in_flight)?;
        Ok((sampler, TextStream::new(&self.stop)?))
    }
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// `max_tokens` are there.
    Length,
    /// The model gave its end-of-text token (which is in no piece).
    Eos,
    /// This stop string came.
    Stop(String),
    /// The context is full.
    Context,
}

impl FinishReason {
    /// A stable word for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Eos => "eos",
            Self::Stop(_) => "stop",
            Self::Context => "context",
        }
    }
}

/// What one step added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Whole characters. Empty while bytes of a character or of a possible stop string are held back.
    pub text: String,
    /// The tokens of this step: one, or the several that came at once.
    pub ids: Vec<u32>,
    /// ln of the probability of each, by the model's logits, before any of the sampler's options; none unless asked for.
    pub logprobs: Vec<f32>,
}

/// A prompt, its continuation so far, and what is held back of its text.
pub struct Generation {
    options: GenerateOptions,
    /// Prompt (BOS first), then what was generated.
    ids: Vec<u32>,
    n_prompt: usize,
    /// Tokens of `ids` that the model has seen.
    n_fed: usize,
    /// The model's sequence that has seen them.
    sequence: u64,
    /// [V], of the token after those, when they were wanted.
    logits: Option<Vec<f32>>,
    sampler: Sampler,
    /// The model's turn, once it draws the tokens.
    turn: Option<u64>,
    text: TextStream,
    finish: Option<FinishReason>,
}

impl Generation {
    /// Tokens of a prompt: BOS, if the model has one, and the text.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty prompt or an option out of its range, [`Error::NoTokenizer`], [`Error::Tokenizer`], and
    /// [`Error::ContextFull`] when prompt and one token do not fit.
    pub fn new(model: &Model, prompt: &str, options: GenerateOptions) -> Result<Self> {
        let start = options.start()?;
        let ids = model.ids_of(ACTION, prompt)?;
        if ids.len() == model.bos().iter().len() {
            return Err(Error::argument("prompt", "text of at least one token", "an empty text"));
        }
        Self::of(model, ids, (0, 0), options, start)
    }

    /// What follows `ids`, of which the model holds the first, all but one at most.
    ///
    /// # Errors
    /// As [`Generation::new`]; [`Error::Argument`] when the model holds something else.
    pub fn behind(model: &Model, ids: Vec<u32>, options: GenerateOptions) -> Result<Self> {
        let n_fed = model.pos();
        if n_fed >= ids.len() || model.history() != &ids[..n_fed] {
            let expected = format!("at least one token more than the {n_fed} that the model holds, and those in front");
            return Err(Error::argument("ids", expected, format!("{} tokens", ids.len())));
        }
        let start = options.start()?;
        Self::of(model, ids, (n_fed, model.sequence()), options, start)
    }

    fn of(
        model: &Model,
        ids: Vec<u32>,
        (n_fed, sequence): (usize, u64),
        options: GenerateOptions,
        (sampler, text): (Sampler, TextStream),
    ) -> Result<Self> {
        model.tokenizer(ACTION)?;
        check_ids("prompt", &ids, model.vocab())?;
        let biased: Vec<u32> = options.sampler.logit_bias.iter().map(|(id, _)| *id).collect();
        check_ids("logit-bias", &biased, model.vocab())?;
        if ids.len() >= model.positions() {
            return Err(Error::ContextFull { needed: ids.len() + 1, available: model.positions() });
        }
        Ok(Self { options, n_prompt: ids.len(), ids, n_fed, sequence, logits: None, sampler, turn: None, text, finish: None })
    }

    /// Runs one chunk of the prompt. Returns how many of its tokens are done, and how many there are.
    ///
    /// # Errors
    /// Those of the model; [`Error::Argument`] when another generation has used the model in between.
    pub async fn prefill(&mut self, model: &mut Model) -> Result<(usize, usize)> {
        if self.n_fed < self.n_prompt {
            if self.n_fed == 0 {
                model.reset();
                self.sequence = model.sequence();
            }
            self.check_turn(model)?;
            let end = self.n_fed + model.next_chunk(self.n_prompt - self.n_fed).await?;
            let ids = &self.ids[self.n_fed..end];
            if end == self.n_prompt && model.draws_on_device() && !self.options.logprobs {
                let n_ids = self.n_prompt.saturating_add(self.options.max_tokens);
                self.turn = Some(model.draw(ids, &self.options.sampler, n_ids, self.options.in_flight).await?);
            } else {
                self.logits = model.prefill(ids, end == self.n_prompt).await?;
            }
            self.n_fed = end;
        }
        Ok((self.n_fed, self.n_prompt))
    }

    /// The next piece, or `None` after the last. Runs what is left of the prompt first. The last piece may have text and no tokens.
    ///
    /// # Errors
    /// As [`Self::prefill`], and [`Error::NotFinite`] when the model gave a logit that is no number.
    pub async fn next(&mut self, model: &mut Model) -> Result<Option<Piece>> {
        if self.finish.is_some() {
            return Ok(None);
        }
        while self.n_fed < self.n_prompt {
            self.prefill(model).await?;
        }
        if self.n_generated() >= self.options.max_tokens {
            return self.end(model, FinishReason::Length, Piece::default());
        }
        let mut piece = Piece::default();
        loop {
            let (id, more) = match self.next_id(model).await {
                // Live keys fill the context's pages.
                Err(Error::PagesFull { .. }) if self.n_generated() > 0 => return self.end(model, FinishReason::Context, piece),
                next => next?,
            };
            if Some(id) == model.eos() && !self.options.ignore_eos {
                return self.end(model, FinishReason::Eos, piece);
            }
            self.ids.push(id);
            let (text, stop) = self.text.push(model.tokenizer(ACTION)?, id)?;
            piece.text += &text;
            piece.ids.push(id);
            if self.options.logprobs {
                piece.logprobs.push(-nll(self.logits.as_deref().unwrap_or_default(), id)? as f32);
            }
            if let Some(ix) = stop {
                model.end_draws();
                self.finish = Some(FinishReason::Stop(self.options.stop[ix].clone()));
                return Ok(Some(piece));
            }
            if self.n_generated() >= self.options.max_tokens {
                return self.end(model, FinishReason::Length, piece);
            }
            if self.ids.len() >= model.positions() {
                return self.end(model, FinishReason::Context, piece);
            }
            if !more {
                return Ok(Some(piece));
            }
        }
    }

    /// The id behind those there are, and whether the one after it is at hand too.
    async fn next_id(&mut self, model: &mut Model) -> Result<(u32, bool)> {
        if self.turn.is_some() || self.n_fed < self.ids.len() {
            self.check_turn(model)?;
        }
        if let Some(turn) = self.turn {
            let drawn = model.drawn(turn).await?;
            self.n_fed = self.ids.len();
            return Ok(drawn);
        }
        if self.n_fed < self.ids.len() {
            self.logits = Some(model.step(self.ids[self.n_fed]).await?);
            self.n_fed += 1;
        }
        Ok((self.sampler.sample(self.logits.as_deref().unwrap_or_default(), &self.ids)?, false))
    }

    /// Flushes what was held back into the last piece.
    fn end(&mut self, model: &mut Model, reason: FinishReason, mut piece: Piece) -> Result<Option<Piece>> {
        model.end_draws();
        let (text, stop) = self.text.finish(model.tokenizer(ACTION)?)?;
        piece.text += &text;
        self.finish = Some(stop.map_or(reason, |ix| FinishReason::Stop(self.options.stop[ix].clone())));
        Ok(if piece == Piece::default() { None } else { Some(piece) })
    }

    /// Two generations may share a model only one after the other: the state of the later one replaces that of the earlier.
    fn check_turn(&self, model: &Model) -> Result<()> {
        if (model.sequence(), model.pos()) == (self.sequence, self.n_fed) {
            return Ok(());
        }
        let got = format!("a model at token {} of another text (another generation has used it)", model.pos());
        Err(Error::argument("generation", format!("the model where it left it, at token {}", self.n_fed), got))
    }

    /// Why it ended; `None` while it runs.
    pub fn finish(&self) -> Option<&FinishReason> {
        self.finish.as_ref()
    }

    /// The prompt's tokens, BOS included.
    pub fn prompt_ids(&self) -> &[u32] {
        &self.ids[..self.n_prompt]
    }

    /// The generated tokens so far, without the end-of-text token.
    pub fn generated_ids(&self) -> &[u32] {
        &self.ids[self.n_prompt..]
    }

    fn n_generated(&self) -> usize {
        self.ids.len() - self.n_prompt
    }
}

/// # Errors
/// [`Error::Argument`] naming the first id that the model has no row for.
pub fn check_ids(option: &str, ids: &[u32], vocab: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => Err(Error::argument(option, format!("token ids below the vocabulary of {vocab}"), format!("id {id}"))),
        None => Ok(()),
    }
}
