//! A text whose tokens are shaded by how much of each a later token can still see.

use super::palette::{MARK, PAPER, SOFT, ink_on, shade, text};
use crate::cli::drawing::{Face, Shape};
use kitfox::Result;
use kitfox::session::Model;
use kitfox::text::{TokenText, token_texts};

/// Lines of text that a picture has at most: the last ones.
const MOST_LINES: usize = 18;
const LINE: i32 = 18;

/// In the place of a token that has a part of a character: its text stands at the token that completes it.
const PART: &str = "»";

/// The text of each token; one without text has its id.
pub fn tokens(model: &Model, ids: &[u32]) -> Result<Vec<String>> {
    let texts = token_texts(model.tokenizer("inspect gates")?, ids)?.into_iter().enumerate();
    let named = texts.zip(ids).map(|((ix, TokenText { text, completed_by }), id)| match text {
        _ if Some(*id) == model.bos() => "<bos>".to_owned(),
        text if !text.is_empty() => text,
        _ if completed_by == ix => format!("<{id}>"),
        _ => PART.to_owned(),
    });
    Ok(named.collect())
}

/// A token as a label: blanks and line breaks can be seen.
pub fn label(token: &str) -> String {
    token.replace(' ', "·").replace('\n', "¶").replace(|letter: char| letter.is_control(), "?")
}

/// Where the tokens of a text lie: line, column, token.
fn lay_out(tokens: &[String], columns: usize) -> Vec<(usize, usize, usize)> {
    let (mut line, mut column) = (0, 0);
    let mut places = Vec::new();
    for (ix, token) in tokens.iter().enumerate() {
        let width = token.chars().count();
        if column > 0 && column + width > columns {
            (line, column) = (line + 1, 0);
        }
        places.push((line, column, ix));
        column += width;
        if token.ends_with('\n') {
            (line, column) = (line + 1, 0);
        }
    }
    places
}

/// Draws the tokens up to the last of `row`, each with its share of `row` (the largest at most `most`); gives the height.
pub fn draw(shapes: &mut Vec<Shape>, [x, y]: [i32; 2], width: i32, tokens: &[String], row: &[f64], most: f64) -> i32 {
    let places = lay_out(&tokens[..row.len()], (width / Face::Small.width()) as usize);
    let n_lines = places.last().map_or(0, |(line, ..)| line + 1);
    let first = n_lines.saturating_sub(MOST_LINES);
    let top = if first == 0 { y } else { y + LINE };
    if let Some((.., ix)) = places.iter().find(|(line, ..)| *line == first).filter(|_| first > 0) {
        shapes.push(text([x, y + LINE / 2], Face::Small, SOFT, format!("... from token {ix} on")));
    }
    for (line, column, ix) in places.iter().filter(|(line, ..)| *line >= first) {
        let token = label(&tokens[*ix]);
        let at = [x + *column as i32 * Face::Small.width(), top + (line - first) as i32 * LINE];
        let size = [token.chars().count() as i32 * Face::Small.width(), LINE - 2];
        let is_last = *ix + 1 == row.len();
        let share = row[*ix] / most;
        let (fill, ink) = if is_last { (MARK, PAPER) } else { (shade(share), ink_on(share)) };
        let title = format!("token {ix} {token}: {:.4}", row[*ix]);
        shapes.push(Shape::Titled { shape: Box::new(Shape::Box { at, size, color: fill }), title });
        let shown = if token.starts_with('·') { token.replacen('·', " ", 1) } else { token };
        shapes.push(text([at[0], at[1] + LINE / 2 - 1], Face::Small, ink, shown));
    }
    top - y + (n_lines - first) as i32 * LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_on_a_new_line_where_they_would_pass_the_edge() {
        let tokens = ["abc", "de", "fgh\n", "i", "jklmnopq", "r"].map(str::to_owned);
        let places = lay_out(&tokens, 6);
        assert_eq!(places, [(0, 0, 0), (0, 3, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4), (4, 0, 5)]);
        assert_eq!(label(" a\n\u{7}"), "·a¶?");
    }
}
