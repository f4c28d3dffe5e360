// What the page brings with it: how it looks, and the one thing that it does.
#pragma once

namespace stockade::timeline {

inline constexpr char kPageStyle[] = R"(
:root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--dim:#57606a;--line:#d0d7de;--box:#f6f8fa;--bad:#b3261e;--find:#7a3e9d;--lost:#8a5a00;--good:#1a7f37}
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--dim:#9198a1;--line:#30363d;--box:#161b22;--bad:#ff8078;--find:#d2a8ff;--lost:#e3b341;--good:#56d364}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif}
h1{margin:0;font-size:1.5rem}h2{margin:0 0 .5rem;font-size:1.05rem;font-weight:600}
header p{margin:.2rem 0 1.2rem;color:var(--dim)}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
.box{border:1px solid var(--line);border-radius:.5rem;background:var(--box);padding:.7rem 1rem;margin-bottom:.7rem}.box h2{margin:0;float:left;margin-right:1rem}.fate{margin:0;color:var(--dim)}.lane{clear:both}
dl{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;margin:.4rem 0 0;font-size:.85rem}dl div{min-width:0}
dl div{display:flex;gap:.4rem}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.lane{position:relative;height:1rem;border-bottom:1px solid var(--line)}
.lane i{position:absolute;top:.15rem;height:.7rem}
.bar{background:var(--good);opacity:.35;border-radius:.2rem}
.mark{width:2px;background:var(--bad)}.mark.finding{background:var(--find)}.mark.lost{background:var(--lost)}
.filters{display:flex;flex-wrap:wrap;gap:.4rem 1.2rem;border:1px solid var(--line);border-radius:.5rem;margin:0 0 1rem;padding:.4rem 1rem}
.rows{list-style:none;margin:0;padding:0}
.row{display:grid;grid-template-columns:6.5rem 1.6rem 5rem minmax(0,1fr);gap:.8rem;padding:.35rem .5rem;border-top:1px solid var(--line);border-left:3px solid transparent}
.row[hidden]{display:none}
.row p{margin:0;overflow-wrap:anywhere}.rest{color:var(--dim);font-size:.88rem}
time{color:var(--dim);text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.who{color:var(--dim)}.tone{font-size:.85rem;color:var(--dim)}
.row.step p:first-child{color:var(--dim)}
.row.refused,.row.end{border-left-color:var(--bad)}.refused .tone,.end .tone{color:var(--bad);font-weight:600}
.row.finding{border-left-color:var(--find)}.finding .tone{color:var(--find);font-weight:600}
.row.span{border-left-color:var(--good)}.span .tone{color:var(--good)}
.row.lost{border-left-color:var(--lost)}.lost .tone{color:var(--lost);font-weight:600}
details ul{margin:.2rem 0;padding-left:1.2rem}summary{cursor:pointer;color:var(--dim);font-size:.88rem}
:focus-visible{outline:2px solid currentColor;outline-offset:2px}
@media(max-width:40rem){body{padding:.8rem}.row{grid-template-columns:auto auto auto;gap:.2rem .8rem}.row>div{grid-column:1/-1}time{text-align:left}}
)";

// Hides and shows rows by their kind.
inline constexpr char kPageScript[] = R"(
for (const box of document.querySelectorAll('.filters input'))
  box.addEventListener('change', () => {
    for (const row of document.querySelectorAll('.row'))
      if (row.dataset.tone === box.value) row.hidden = !box.checked;
  });
)";

}  // namespace stockade::timeline
