//! What both pictures share: text that is safe in XML, and colors for light and dark pages.

/// Text as XML has it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Classes of text and shapes. A page that shows the picture decides between light and dark.
pub(super) const STYLE: &str = "\
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; fill: #1f2328; white-space: pre; }
  .paper { fill: #ffffff; stroke: #d1d9e0; }
  .bold { font-weight: 700; }
  .dim, .small { fill: #59636e; }
  .small { font-size: 12px; }
  .good { fill: #1a7f37; }
  .pending { fill: #fff8c5; stroke: #9a6700; }
  .spot { fill: #ddf4ff; stroke: #0969da; }
  .on-demand { fill: #fbefff; stroke: #8250df; }
  .pod { fill: #1a7f37; stroke: none; }
  .arrow { stroke: #59636e; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .paper { fill: #0d1117; stroke: #3d444d; }
    .dim, .small { fill: #9198a1; }
    .good { fill: #3fb950; }
    .pending { fill: #272115; stroke: #d29922; }
    .spot { fill: #10233f; stroke: #4493f8; }
    .on-demand { fill: #211436; stroke: #ab7df8; }
    .pod { fill: #3fb950; }
    .arrow { stroke: #9198a1; }
  }
";

/// A picture of a size; `title` is what screen readers say.
pub(super) fn picture(width: usize, height: usize, title: &str, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{body}</svg>\n",
        escaped(title),
        width - 1,
        height - 1
    )
}
