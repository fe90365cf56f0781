"""Style sheet of the report: light and dark, narrow and wide, screen and paper; nothing from outside."""

STYLE = """
:root{--ink:#20242b; --quiet:#5c636d; --page:#fbfbf9; --card:#fff; --line:#d9dbd6; --mark:#fff3d6;
  --good:#00704f; --bad:#b3400a; --blue:#0072b2; --sky:#56b4e9}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8ea; --quiet:#a3abb5; --page:#15181c; --card:#1d2126;
  --line:#363c44;  --mark:#3a3218; --good:#3fc79a; --bad:#ff9866; --blue:#4aa3df; --sky:#a9dcf8}
}
*{box-sizing:border-box}
body{margin:0; background:var(--page); color:var(--ink); font:16px/1.5 system-ui,sans-serif;
  overflow-wrap:anywhere}
main{max-width:1120px;margin:0 auto;padding:1rem clamp(.75rem,3vw,2rem) 3rem}
h1{font-size:1.6rem;margin:.5rem 0 .25rem}
h2{font-size:1.2rem;margin:0 0 .6rem}
h3{font-size:1rem;margin:1rem 0 .4rem}
section{background:var(--card); border:1px solid var(--line); border-radius:8px; padding:1rem
  clamp(.75rem,2.5vw,1.5rem); margin-top:1rem}
p{margin:.4rem 0;max-width:75ch}
.explained td:last-child{color:var(--quiet)}
.quiet,dt,figcaption,.tiles span{color:var(--quiet);font-size:.875rem}
.badge{margin:.25rem 0 .75rem}
.badge span{border:1px solid currentColor; border-radius:99px; padding:.15rem .75rem; font-weight:600;
  font-size:.9rem; display:inline-block}
.good{color:var(--good)}
.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.6rem}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.6rem .8rem}
.tiles b{display:block;font-size:1.45rem;line-height:1.2}
.notes{padding-left:1.2rem;margin:.8rem 0}
.formula{font-family:"STIX Two Text","Cambria Math",Cambria,serif; font-size:1.15rem; overflow-x:auto;
  max-width:none; padding:.2rem 0}
sub{line-height:0}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.2rem 1rem;margin:.6rem 0}
dd{margin:0}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem;overflow-wrap:normal}
th,td{text-align:left;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--quiet);font-weight:600}
td i{display:block;height:.7rem;margin-top:.4rem;background:var(--blue);border-radius:2px;min-width:1px}
td:has(i){min-width:9rem;width:16rem}
.chosen td{background:var(--mark);font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,29rem),1fr));gap:1.2rem}
figure{margin:0;min-width:0;max-width:44rem}
figure svg{display:block;width:100%;height:auto;color:var(--ink)}
figcaption{margin-top:.2rem}
pre{background:var(--page); border:1px solid var(--line); border-radius:6px; padding:.6rem .8rem;
  overflow-x:auto; white-space:pre-wrap}
summary{cursor:pointer;padding:.2rem 0}
@media (max-width:30rem){dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.4rem}
body{font-size:15px}
.explained,.explained tbody{display:block}
.explained thead{display:none}
.explained tr{display:grid;grid-template-columns:1fr auto;border-bottom:1px solid var(--line);padding:.3rem 0}
.explained td{border:0;padding:0}
.explained td:last-child{grid-column:1/-1;color:var(--quiet);font-size:.875rem}
}
@media print{:root{--ink:#000; --quiet:#444; --page:#fff; --card:#fff; --line:#bbb; --mark:#eee;
  --good:#00704f; --bad:#b3400a; --blue:#0072b2; --sky:#56b4e9}
body{font-size:10pt}
section,figure{break-inside:avoid}
section{border:0;padding:0}
.figures{grid-template-columns:1fr 1fr}
}
"""
