//! A picture as a list of boxes, lines, texts and grids of coloured cells, written as SVG or drawn as PNG.
//!
//! Coordinates are pixels, the origin is above left. Texts are laid out for the raster's fonts, of fixed width ([`Face`]); SVG asks
//! for a monospaced font of nearly that width, so that both look alike. A grid is one image in either.

use embedded_graphics::mono_font::{MonoFont, MonoTextStyle, iso_8859_1};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::prelude::{Dimensions, DrawTarget, Drawable, Pixel, Point, Size};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use kitfox::{Error, Result};
use std::convert::Infallible;
use std::path::Path;

/// Width of a character of [`Face::Normal`].
pub const CHARACTER: i32 = Face::Normal.width();

/// The raster's fonts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// 10 × 20 pixels a character.
    Normal,
    /// 7 × 14.
    Small,
    /// 6 × 10.
    Tiny,
}

impl Face {
    /// Pixels of a character.
    pub const fn width(self) -> i32 {
        match self {
            Self::Normal => 10,
            Self::Small => 7,
            Self::Tiny => 6,
        }
    }

    /// In SVG: a character of a monospaced font is 0.6 of its size wide.
    fn svg_size(self) -> &'static str {
        match self {
            Self::Normal => "16",
            Self::Small => "11.6",
            Self::Tiny => "10",
        }
    }

    fn font(self) -> &'static MonoFont<'static> {
        match self {
            Self::Normal => &iso_8859_1::FONT_10X20,
            Self::Small => &iso_8859_1::FONT_7X14,
            Self::Tiny => &iso_8859_1::FONT_6X10,
        }
    }
}

/// Red, green, blue.
pub type Color = [u8; 3];

/// How a picture is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scalable.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// By the end of a file's name.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(Error::argument("plot", "a file name that ends in .svg or .png", path.display())),
        }
    }
}

/// Which point of a text its position is; the middle of its height always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

/// One thing on the picture.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A filled box: left, top, width, height.
    Box { at: [i32; 2], size: [i32; 2], color: Color },
    /// A line from point to point.
    Line { points: Vec<[i32; 2]>, width: u32, color: Color },
    /// A line of text.
    Text { at: [i32; 2], anchor: Anchor, text: String, face: Face, color: Color },
    /// Cells of one size, row by row, in a box: left, top, width, height.
    Cells { at: [i32; 2], size: [i32; 2], columns: usize, colors: Vec<Color> },
    /// A shape, and what SVG shows where the pointer rests on it.
    Titled { shape: Box<Shape>, title: String },
}

/// A picture; later shapes lie on earlier ones, all on white.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Width and height.
    pub size: [i32; 2],
    /// From the back to the front.
    pub shapes: Vec<Shape>,
}

impl Drawing {
    /// As the text of an SVG file.
    pub fn to_svg(&self) -> String {
        let [w, h] = self.size;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             font-family=\"monospace\" font-size=\"16\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>\n"
        );
        self.shapes.iter().for_each(|shape| svg += &shape.to_svg());
        svg + "</svg>\n"
    }

    /// As the bytes of a PNG file.
    pub fn to_png(&self) -> Vec<u8> {
        let mut raster = Raster::new(self.size);
        for shape in &self.shapes {
            let Ok(()) = raster.draw(shape);
        }
        encode(self.size.map(i32::unsigned_abs), &raster.bytes)
    }
}

impl Shape {
    fn to_svg(&self) -> String {
        match self {
            Self::Box { at: [x, y], size: [w, h], color } => {
                format!("<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{}\"/>\n", hex(*color))
            }
            Self::Line { points, width, color } => {
                let points: Vec<_> = points.iter().map(|[x, y]| format!("{x},{y}")).collect();
                let (points, color) = (points.join(" "), hex(*color));
                format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>\n")
            }
            Self::Text { at: [x, y], anchor, text, face, color } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let (size, color, text) = (face.svg_size(), hex(*color), escaped(text));
                format!(
                    "<text x=\"{x}\" y=\"{y}\" dy=\"0.35em\" text-anchor=\"{anchor}\" font-size=\"{size}\" xml:space=\"preserve\" \
                     fill=\"{color}\">{text}</text>\n"
                )
            }
            Self::Cells { at: [x, y], size: [w, h], columns, colors } => {
                let rows = colors.len() / columns.max(&1);
                let png = base64(&encode([*columns as u32, rows as u32], colors.as_flattened()));
                format!(
                    "<image x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" preserveAspectRatio=\"none\" \
                     style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{png}\"/>\n"
                )
            }
            Self::Titled { shape, title } => format!("<g><title>{}</title>{}</g>\n", escaped(title), shape.to_svg().trim_end()),
        }
    }
}

fn hex([red, green, blue]: Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// As XML can say it: control characters have no place in it.
fn escaped(text: &str) -> String {
    let text: String = text.chars().map(|letter| if is_no_xml(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn is_no_xml(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}')
}

/// The bytes of a PNG file of pixels, three bytes each, row by row.
fn encode([width, height]: [u32; 2], pixels: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.unwrap_or_else(|error| unreachable!("writing width × height × 3 bytes to memory: {error}"));
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let bits = (0..3).fold(0u32, |bits, ix| bits << 8 | u32::from(bytes.get(ix).copied().unwrap_or(0)));
        let digit = move |ix: usize| char::from(DIGITS[(bits >> (18 - 6 * ix)) as usize & 63]);
        let n = bytes.len();
        (0..4).map(move |ix| if ix <= n { digit(ix) } else { '=' })
    };
    bytes.chunks(3).flat_map(group).collect()
}

/// A letter that the raster's fonts have, where one stands for another.
fn plain(letter: char) -> char {
    match letter {
        '\u{2018}' | '\u{2019}' => '\'',
        '\u{201c}' | '\u{201d}' => '"',
        '\u{2010}'..='\u{2015}' => '-',
        other => other,
    }
}

/// Pixels, three bytes each, row by row.
struct Raster {
    size: [i32; 2],
    bytes: Vec<u8>,
}

impl Raster {
    fn new(size: [i32; 2]) -> Self {
        Self { size, bytes: vec![255; size[0] as usize * size[1] as usize * 3] }
    }

    fn draw(&mut self, shape: &Shape) -> std::result::Result<(), Infallible> {
        let color = |[red, green, blue]: Color| Rgb888::new(red, green, blue);
        let point = |[x, y]: [i32; 2]| Point::new(x, y);
        match shape {
            Shape::Box { at, size: [w, h], color: fill } => {
                let size = Size::new(w.unsigned_abs(), h.unsigned_abs());
                Rectangle::new(point(*at), size).into_styled(PrimitiveStyle::with_fill(color(*fill))).draw(self)
            }
            Shape::Line { points, width, color: stroke } => {
                let style = PrimitiveStyle::with_stroke(color(*stroke), *width);
                let mut pairs = points.windows(2);
                pairs.try_for_each(|pair| Line::new(point(pair[0]), point(pair[1])).into_styled(style).draw(self))
            }
            Shape::Cells { at, size: [w, h], columns, colors } => {
                let rows = colors.len() / columns.max(&1);
                let cell = |x: i32, y: i32| (y as usize * rows / *h as usize) * columns + x as usize * columns / *w as usize;
                let pixels = (0..*h).flat_map(|y| (0..*w).map(move |x| (x, y)));
                self.draw_iter(pixels.map(|(x, y)| Pixel(point([at[0] + x, at[1] + y]), color(colors[cell(x, y)]))))
            }
            Shape::Titled { shape, .. } => self.draw(shape),
            Shape::Text { at, anchor, text, face, color: ink } => {
                let alignment = match anchor {
                    Anchor::Start => Alignment::Left,
                    Anchor::Middle => Alignment::Center,
                    Anchor::End => Alignment::Right,
                };
                let layout = TextStyleBuilder::new().alignment(alignment).baseline(Baseline::Middle).build();
                let style = MonoTextStyle::new(face.font(), color(*ink));
                let text: String = text.chars().map(plain).collect();
                Text::with_text_style(&text, point(*at), style, layout).draw(self).map(drop)
            }
        }
    }
}

impl Dimensions for Raster {
    fn bounding_box(&self) -> Rectangle {
        Rectangle::new(Point::zero(), Size::new(self.size[0].unsigned_abs(), self.size[1].unsigned_abs()))
    }
}

impl DrawTarget for Raster {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> std::result::Result<(), Infallible> {
        let [w, h] = self.size;
        for Pixel(at, color) in pixels {
            // What lies outside is cut off.
            if (0..w).contains(&at.x) && (0..h).contains(&at.y) {
                let first = (at.y as usize * w as usize + at.x as usize) * 3;
                self.bytes[first..first + 3].copy_from_slice(&[color.r(), color.g(), color.b()]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn both_formats_show_the_same_shapes() {
        let red = [200, 0, 0];
        let shapes = vec![
            Shape::Box { at: [10, 10], size: [20, 10], color: red },
            Shape::Line { points: vec![[0, 50], [99, 50]], width: 1, color: [0, 0, 200] },
            // Over the edge: cut off.
            Shape::Text { at: [95, 30], anchor: Anchor::Start, text: "a<b&c\u{1b}".into(), face: Face::Normal, color: [0, 0, 0] },
            // Two rows of three cells, two pixels wide and five high each.
            Shape::Titled {
                shape: Box::new(Shape::Cells {
                    at: [40, 0],
                    size: [6, 10],
                    columns: 3,
                    colors: (1..7).map(|n| [n; 3]).collect(),
                }),
                title: "<six>".into(),
            },
        ];
        let drawing = Drawing { size: [100, 60], shapes };
        let svg = drawing.to_svg();
        assert!(svg.contains("fill=\"#c80000\"") && svg.contains("0,50 99,50") && svg.contains("a&lt;b&amp;c\u{fffd}<"), "{svg}");
        assert!(svg.contains("<g><title>&lt;six&gt;</title><image x=\"40\"") && svg.contains("base64,iVBORw0KGgo"), "{svg}");
        let mut reader = png::Decoder::new(std::io::Cursor::new(drawing.to_png())).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.width, info.height, bytes.len()), (100, 60, 18_000));
        let pixel = |x: usize, y: usize| &bytes[(y * 100 + x) * 3..][..3];
        assert_eq!((pixel(10, 10), pixel(29, 19), pixel(30, 19)), (&red[..], &red[..], &[255; 3][..]));
        assert_eq!(pixel(50, 50), [0, 0, 200]);
        assert_eq!([(40, 0), (41, 4), (42, 0), (45, 5), (40, 9)].map(|(x, y)| pixel(x, y)[0]), [1, 1, 2, 6, 4]);
        for (bytes, want) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(bytes.as_bytes()), want);
        }
        assert!((95..100).any(|x| (20..40).any(|y| pixel(x, y) == [0, 0, 0])), "the text has ink");
    }
}
