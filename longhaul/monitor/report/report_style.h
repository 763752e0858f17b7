#pragma once

namespace longhaul::monitor {

/// The report's style sheet.
inline constexpr const char* kReportStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5d6878;
--line:#e3e7ec;--grid:#e9edf1;--a:#1f6feb;--b:#d9730d;--c:#1a9c6b;--d:#8250df;--e:#c2255c;--f:#0e8a9c;--g:#8a6d00;--h:#5b6472;
--compute:#2f9e6e;--data:#e0a100;--save:#3b82d6;--validation:#7c6fd8;--redone:#d6455d;
--restart:#e8833a;--paused:#8aa0b5;--suspended:#5f7f9a;--idle:#9a6fb0;--waiting:#c3cad3;--other:#a99f8d;--bad:#d6293e;
--l0:#08306b;--l1:#2171b5;--l2:#6baed6;--l3:#c3dcee;--l4:#edf0f3;--l5:#fdd0a2;--l6:#f0803c;--l7:#b63a06}
@media (prefers-color-scheme:dark){:root{--bg:#11151b;--card:#1a2029;--ink:#e4e9f0;
--soft:#97a3b3;--line:#2c3440;--grid:#262e39;--a:#6aa6ff;--b:#f0a04b;--c:#4fd1a1;--d:#b392f0;
--e:#ff7aa2;--f:#4cc9da;--g:#d6c04a;--h:#b8c0cc;--compute:#43b985;--data:#e5b63a;--save:#5f9fea;--validation:#998ff0;
--redone:#ef6b80;--restart:#f09a58;--paused:#7d91a5;--suspended:#56718a;--idle:#a884bd;--waiting:#4a5563;--other:#8d8474;--bad:#ff6b7d;
--l0:#cfe6ff;--l1:#7db8f0;--l2:#4383bf;--l3:#2b4d70;--l4:#2a323d;--l5:#6b4526;--l6:#c96f2b;--l7:#ffb877}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 24px 48px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:6px 14px;margin-bottom:18px}
h1{font-size:25px;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:18px;margin:34px 0 12px}
h3{font-size:14px;margin:0 0 6px;font-weight:600}
.state{font-size:13px;font-weight:600;padding:2px 11px;border-radius:99px;color:#fff;
background:var(--soft)}
.state.good{background:#23835b}.state.bad{background:#c02a3f}
.where{color:var(--soft);font-size:13px;flex-basis:100%;overflow-wrap:anywhere}
.cause{flex-basis:100%;border-left:3px solid var(--bad);padding:2px 10px;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(116px,1fr));gap:10px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:10px 12px}.tile b{display:block;font-size:20px;font-weight:600;line-height:1.3;
font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:12.5px}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
.card{padding:14px 16px 8px;min-width:0;position:relative}.card p{margin:2px 0 8px;color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg text.none{font-size:14px}
.grid path{stroke:var(--grid);fill:none}.axis path{stroke:var(--soft);fill:none;opacity:.6}
.line{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}
.line.old{stroke-dasharray:6 3}
.band{opacity:.42;stroke-width:1}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12.5px;margin-bottom:4px}
.name{white-space:nowrap}.legend .name{max-width:100%;white-space:normal;overflow-wrap:break-word}
.key{display:inline-block;width:14px;margin-right:6px;vertical-align:3px;border-top:3px solid}
.key.old{border-top-style:dashed}
.dot{stroke:var(--card);stroke-width:1}
.a{stroke:var(--a)}.b{stroke:var(--b)}.c{stroke:var(--c)}.d{stroke:var(--d)}.e{stroke:var(--e)}
.f{stroke:var(--f)}.g{stroke:var(--g)}.h{stroke:var(--h)}
.key.a{color:var(--a)}.key.b{color:var(--b)}.key.c{color:var(--c)}.key.d{color:var(--d)}
.key.e{color:var(--e)}.key.f{color:var(--f)}.key.g{color:var(--g)}.key.h{color:var(--h)}
.dot.a,.band.a{fill:var(--a)}.dot.b,.band.b{fill:var(--b)}.dot.c,.band.c{fill:var(--c)}
.dot.d,.band.d{fill:var(--d)}.dot.e,.band.e{fill:var(--e)}
.dot.f,.band.f{fill:var(--f)}.dot.g,.band.g{fill:var(--g)}.dot.h,.band.h{fill:var(--h)}
.mark{fill:none;stroke-dasharray:3 3;stroke-width:1.2}.mark.restarted{stroke:var(--restart)}
.mark.bad{stroke:var(--bad)}.nan{fill:var(--bad)}
.compute{fill:var(--compute)}.data{fill:var(--data)}.save{fill:var(--save)}
.validation{fill:var(--validation)}.redone{fill:var(--redone)}.restart{fill:var(--restart)}
.paused{fill:var(--paused)}.suspended{fill:var(--suspended)}.idle{fill:var(--idle)}
.waiting{fill:var(--waiting)}.other{fill:var(--other)}
.wide{grid-column:1/-1}
.maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,270px),1fr));gap:8px 14px}
.map{position:relative;min-width:0}.map b{font-size:12.5px;font-weight:600}
svg.heat{touch-action:pan-y}svg.heat text{font-size:11px}
.frame{fill:none;stroke:var(--line)}
.l0{color:var(--l0)}.l1{color:var(--l1)}.l2{color:var(--l2)}.l3{color:var(--l3)}.l4{color:var(--l4)}.l5{color:var(--l5)}.l6{color:var(--l6)}.l7{color:var(--l7)}
.heat path{stroke:currentColor;fill:none}.swatch .cell{fill:currentColor}
.plot:has(.curve~.curve) .band{opacity:.2}
.line.pale{opacity:.35}.plot .curve .band.pale{opacity:.12}
svg.plot{touch-action:pan-y;user-select:none;-webkit-user-select:none}
.hair{stroke:var(--soft);fill:none;pointer-events:none}
.chosen{fill:var(--a);fill-opacity:.14;stroke:none;pointer-events:none}
.tip{position:absolute;z-index:2;pointer-events:none;max-width:calc(100% - 8px);
background:var(--card);border:1px solid var(--soft);border-radius:6px;padding:4px 9px;
font-size:12.5px;line-height:1.45;font-variant-numeric:tabular-nums;overflow-wrap:break-word}
.tools{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px;margin:0 0 10px;font-size:13px;
color:var(--soft)}
.tools[hidden],.tip[hidden]{display:none}.tools label{display:flex;align-items:center;gap:8px}
.tools output{min-width:9em}.tools input{accent-color:var(--a)}
.tools button{font:inherit;color:var(--ink);background:var(--card);border:1px solid var(--line);
border-radius:6px;padding:3px 11px}.tools button:disabled{color:var(--soft);opacity:.6}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--line);
vertical-align:top}
th{color:var(--soft);font-weight:600;font-size:12.5px;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.t{white-space:nowrap;font-variant-numeric:tabular-nums;color:var(--soft)}
td.x{overflow-wrap:anywhere;min-width:16em}td.warn{color:var(--bad)}
.swatch{width:12px;height:12px;display:inline-block;vertical-align:-1px;margin-right:8px}
details{margin-top:14px}summary{cursor:pointer;font-weight:600}
pre{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;
overflow-x:auto;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.note{color:var(--soft);font-size:12.5px;margin:4px 0}
footer{margin-top:36px;color:var(--soft);font-size:12.5px}
@media (max-width:600px){main{padding:16px 10px 32px}.card{padding:10px 10px 6px}
.more{display:none}th,td{padding-right:8px}td.x{min-width:6em}td.t{white-space:normal}
svg{overflow:visible}svg text{font-size:17px}svg text.none{font-size:20px}
.strip{margin-bottom:12px}.strip text{font-size:28px;transform:translateY(18px)}
.strip text:nth-of-type(even){display:none}}
@media print{.tools{display:none}body{background:#fff}.card,.tile,tr{break-inside:avoid}}
)css";

}  // namespace longhaul::monitor
