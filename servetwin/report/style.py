"""The report's style sheet: system fonts, light and dark, without requests."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#16202c;--soft:#5b6878;--line:#e3e7ec;
--chip:#eef1f5;
--c1:#2563c9;--c2:#d9660a;--c3:#0e8f7e;--good:#16794a;--warn:#9a5b00;--warnbg:#fff6e2}
@media(prefers-color-scheme:dark){:root{--bg:#11161d;--card:#1a212b;--ink:#e6ebf1;--soft:#98a5b5;
--line:#2c3643;
--chip:#242d39;--c1:#6ea3f5;--c2:#f39b4b;--c3:#3fc9b3;--good:#5fd39a;--warn:#f0bc5e;--warnbg:#2e2612}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1140px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 6px;letter-spacing:-.01em;overflow-wrap:break-word}
h2{font-size:17px;margin:34px 0 12px}
.kind{color:var(--c1);font-weight:600;font-size:13px;letter-spacing:.04em;text-transform:uppercase;
margin:0 0 4px}
.claim,.soft{color:var(--soft)}.claim{margin:0;overflow-wrap:break-word}
.facts{display:flex;flex-wrap:wrap;gap:6px 22px;margin:14px 0 0;padding:0;list-style:none;font-size:14px}
.facts b{font-weight:600;overflow-wrap:break-word}.facts span{color:var(--soft);margin-right:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin:24px 0 0}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 16px}.tile p{margin:0;color:var(--soft);font-size:13px}
.tile strong{display:block;font-size:23px;line-height:1.35;font-weight:650;
font-variant-numeric:tabular-nums}
.card{padding:14px 16px;margin:0;min-width:0}.card+.card{margin:0}
.grid2{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}.full{grid-column:1/-1}
figcaption{font-weight:600;font-size:14px;margin:0 0 2px}
figcaption small{display:block;font-weight:400;color:var(--soft)}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;color:var(--soft);margin:2px 0 6px}
.key i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:6px 10px;text-align:right;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500}tr:last-child td,tr:last-child th{border-bottom:0}
th:first-child,td.name{text-align:left}td.name{font-weight:600}
td.text{text-align:left;overflow-wrap:break-word}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(225px,1fr));gap:2px 28px;margin:0;
font-size:14px}
dl div{display:flex;justify-content:space-between;gap:12px;padding:5px 0;
border-bottom:1px solid var(--line)}
dt{color:var(--soft)}dd{margin:0;font-weight:600;text-align:right;font-variant-numeric:tabular-nums}
.chip{display:inline-block;background:var(--chip);border-radius:6px;padding:2px 9px;margin:0 6px 6px 0;
font-size:13px}
.chips{margin:10px 0 0}
.note{background:var(--warnbg);border-left:3px solid var(--warn);border-radius:6px;padding:9px 14px;
margin:12px 0 0;
font-size:14px;overflow-wrap:break-word}
.from td{vertical-align:top}.from .name{white-space:nowrap;width:1%;padding-right:20px}
svg{display:block;width:100%;height:auto}svg.slim{display:none}svg text{font-size:11.5px;fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:1;fill:none}.axis{stroke:var(--soft);stroke-width:1;fill:none}
.l1,.l2,.l3{fill:none;stroke-width:2;stroke-linejoin:round}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}
.l3{stroke:var(--c3)}
.a1,.a2,.a3{opacity:.16}.a1,.f1{fill:var(--c1)}.a2,.f2{fill:var(--c2)}.a3,.f3{fill:var(--c3)}
.p1,.p2,.p3{fill:none;stroke-linecap:round;opacity:.55}
.p1{stroke:var(--c1)}.p2{stroke:var(--c2)}.p3{stroke:var(--c3)}
.rule path{stroke:var(--soft);stroke-width:1.4;stroke-dasharray:5 4;fill:none}
svg .rule text{fill:var(--ink);
stroke:var(--card);stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.r1 path{stroke:var(--c1)}.r2 path{stroke:var(--c2)}.r3 path{stroke:var(--c3)}
.b1{background:var(--c1)}.b2{background:var(--c2)}.b3{background:var(--c3)}
pre{margin:0;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;
overflow-wrap:break-word}
summary{cursor:pointer;font-weight:600}details pre{margin-top:10px}
td.whole{white-space:nowrap;overflow-wrap:normal}.small{font-size:13px;margin:10px 0 0}
footer{color:var(--soft);font-size:13px;margin-top:28px}
.filter{margin:0;display:flex;flex-wrap:wrap;gap:8px 18px;font-size:14px}
.filter input,.filter select{font:inherit;color:inherit;background:var(--chip);border:1px solid var(--line);
border-radius:6px;padding:3px 8px;max-width:100%}
.sources td.text{overflow-wrap:anywhere}
.tall{max-height:560px;overflow-y:auto}tr[hidden]{display:none!important}
td .part{white-space:nowrap;display:inline-block}
@media(max-width:820px){.grid2{grid-template-columns:minmax(0,1fr)}main{padding:20px 14px 40px}}
@media(max-width:560px){svg.slim{display:block}svg.broad{display:none}dl div{flex-wrap:wrap}
.sources td,.sources .name{display:block;width:auto;border:0;padding:2px 4px}
.sources td.text{padding-bottom:9px}
.chip{max-width:100%;overflow-wrap:anywhere}}
/* On a narrow screen a row becomes a block, each cell under the name of its column. */
@media(max-width:900px){.blocks,.blocks tbody{display:block}
.blocks tr{display:block;padding:8px 0;border-bottom:1px solid var(--line)}
.blocks tr.head{display:none}
.blocks td{display:flex;justify-content:space-between;gap:14px;border:0;
padding:2px 4px;text-align:right;white-space:normal;min-width:0;overflow-wrap:break-word}
.blocks.from .name{width:auto;padding-right:4px}.blocks td>*{min-width:0}.blocks td.text{text-align:right}
.blocks td[data-name]::before{content:attr(data-name);color:var(--soft);text-align:left;
flex:none;max-width:45%}}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}}
""".strip()

# Only for pages with a range: the others stay unchanged.
RANGE_STYLE: Final = """
.tile small,dd small{display:block;color:var(--soft);font-size:12.5px;font-weight:400;
font-variant-numeric:tabular-nums}
.far{margin:18px 0 0;border-left:3px solid var(--c1)}.far p{margin:0;overflow-wrap:break-word}
.far details{margin-top:6px;font-size:13px}.far summary{font-weight:400;color:var(--soft)}
tr.end td{color:var(--soft);font-size:13px;padding-top:2px;padding-bottom:2px}
tr.end td:first-child{text-align:left;padding-left:22px}
""".strip()
