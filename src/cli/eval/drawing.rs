//! A picture as a list of boxes, lines and texts, written as SVG or drawn as PNG.
//!
//! Coordinates are pixels, the origin is above left. Texts are laid out for the raster's font, 10 × 20 pixels a character; SVG asks
//! for a monospaced font of nearly that width, so that both look alike.

use embedded_graphics::mono_font::{MonoTextStyle, ascii::FONT_10X20};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::prelude::{Dimensions, DrawTarget, Drawable, Pixel, Point, Size};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use kitfox::{Error, Result};
use std::convert::Infallible;
use std::path::Path;

/// Width of a character of the raster's font.
pub const CHARACTER: i32 = 10;

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
    Text { at: [i32; 2], anchor: Anchor, text: String, color: Color },
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
        for shape in &self.shapes {
            svg += &match shape {
                Shape::Box { at: [x, y], size: [w, h], color } => {
                    format!("<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{}\"/>\n", hex(*color))
                }
                Shape::Line { points, width, color } => {
                    let points: Vec<_> = points.iter().map(|[x, y]| format!("{x},{y}")).collect();
                    let (points, color) = (points.join(" "), hex(*color));
                    format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>\n")
                }
                Shape::Text { at: [x, y], anchor, text, color } => {
                    let anchor = match anchor {
                        Anchor::Start => "start",
                        Anchor::Middle => "middle",
                        Anchor::End => "end",
                    };
                    let (color, text) = (hex(*color), escaped(text));
                    format!("<text x=\"{x}\" y=\"{y}\" dy=\"0.35em\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>\n")
                }
            };
        }
        svg + "</svg>\n"
    }

    /// As the bytes of a PNG file.
    pub fn to_png(&self) -> Vec<u8> {
        let mut raster = Raster::new(self.size);
        for shape in &self.shapes {
            let Ok(()) = raster.draw(shape);
        }
        raster.encode()
    }
}

fn hex([red, green, blue]: Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
            Shape::Text { at, anchor, text, color: ink } => {
                let alignment = match anchor {
                    Anchor::Start => Alignment::Left,
                    Anchor::Middle => Alignment::Center,
                    Anchor::End => Alignment::Right,
                };
                let layout = TextStyleBuilder::new().alignment(alignment).baseline(Baseline::Middle).build();
                let style = MonoTextStyle::new(&FONT_10X20, color(*ink));
                Text::with_text_style(text, point(*at), style, layout).draw(self).map(drop)
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, self.size[0].unsigned_abs(), self.size[1].unsigned_abs());
        encoder.set_color(png::ColorType::Rgb);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&self.bytes));
        written.unwrap_or_else(|error| unreachable!("writing width × height × 3 bytes to memory: {error}"));
        out
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
            Shape::Text { at: [95, 30], anchor: Anchor::Start, text: "a<b&c".into(), color: [0, 0, 0] },
        ];
        let drawing = Drawing { size: [100, 60], shapes };
        let svg = drawing.to_svg();
        assert!(svg.contains("fill=\"#c80000\"") && svg.contains("0,50 99,50") && svg.contains("a&lt;b&amp;c"), "{svg}");
        let mut reader = png::Decoder::new(std::io::Cursor::new(drawing.to_png())).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.width, info.height, bytes.len()), (100, 60, 18_000));
        let pixel = |x: usize, y: usize| &bytes[(y * 100 + x) * 3..][..3];
        assert_eq!((pixel(10, 10), pixel(29, 19), pixel(30, 19)), (&red[..], &red[..], &[255; 3][..]));
        assert_eq!(pixel(50, 50), [0, 0, 200]);
        assert!((95..100).any(|x| (20..40).any(|y| pixel(x, y) == [0, 0, 0])), "the text has ink");
    }
}
