"""The look of a report: one style sheet, light and dark, nothing fetched."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #f3f4f7; --card: #ffffff; --ink: #1d2431; --soft: #5d6878; --rule: #d9dde5; --accent: #2f6fce;
  --pass: #1f8a5b; --pass-bg: #e2f4eb; --fail: #c03548; --fail-bg: #fbe6e9; --warn: #a86410; --warn-bg: #fdf0dc;
  --none: #667082; --none-bg: #eceff3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #10141b; --card: #181e27; --ink: #e5e9f0; --soft: #98a3b3; --rule: #2d3644; --accent: #7fb0f5;
    --pass: #5fd0a0; --pass-bg: #153a2b; --fail: #f58a99; --fail-bg: #43202a; --warn: #efb466; --warn-bg: #402e14;
    --none: #a3aebd; --none-bg: #262e3a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 20px 60px; }
header { display: flex; gap: 16px; align-items: flex-start; justify-content: space-between; margin-bottom: 20px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 0 0 10px; }
h3 { font-size: 14px; margin: 14px 0 6px; }
p { margin: 0 0 8px; } .soft { color: var(--soft); } a { color: var(--accent); }
section, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
section { padding: 16px 18px; margin-top: 16px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.card { padding: 12px 14px; } .card b { display: block; font-size: 21px; font-weight: 650; line-height: 1.25; }
.card span { color: var(--soft); font-size: 12.5px; }
.badge { display: inline-block; border-radius: 999px; padding: 1px 10px; font-weight: 600; font-size: 12.5px;
  white-space: nowrap; color: var(--none); background: var(--none-bg); }
.badge.big { font-size: 16px; padding: 6px 18px; }
.pass { color: var(--pass); background: var(--pass-bg); } .fail { color: var(--fail); background: var(--fail-bg); }
.warn { color: var(--warn); background: var(--warn-bg); }
.scroll { overflow-x: auto; } .line { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
tr:last-child td { border-bottom: 0; } td.n, th.n { text-align: right; } td.n { white-space: nowrap; }
th.n + th:not(.n), td.n + td:not(.n) { padding-left: 10px; }
code, pre { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { margin: 8px 0 0; overflow-x: auto; max-height: 420px; }
details > summary { cursor: pointer; color: var(--accent); }
.plot { width: 100%; height: auto; display: block; } .plot text { font-family: ui-sans-serif, system-ui, sans-serif; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
""".strip()
