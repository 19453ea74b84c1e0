# SPDX-License-Identifier: GPL-2.0
"""A result as one HTML file that needs nothing else: no script, no network, plots inline."""

import base64

import jinja2
from markupsafe import Markup

from . import plots, stats

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1b1b; --soft: #5c5c5c; --line: #d6d6d6; --head: #f2f2f2;
  --slower: #b34700; --faster: #00704f; --few: #94457a; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --text: #e6e6e6; --soft: #a3a3a3; --line: #3a3d42;
  --head: #22252a; --slower: #ff9a57; --faster: #4fd0a5; --few: #e3a3cb; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem;
  max-width: 1220px; box-sizing: border-box; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin: .3rem 0; } h2 { margin: 2.2rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { margin: 1.4rem 0 .4rem; }
a { color: inherit; } nav a { margin-right: 1rem; }
.soft, .no-difference { color: var(--soft); } .slower { color: var(--slower); font-weight: 600; }
.faster { color: var(--faster); } .too-few { color: var(--few); }
.box { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: .16rem .55rem; text-align: left; white-space: nowrap;
  vertical-align: top; }
th { background: var(--head); } .n { text-align: right; }
.wrap { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
figure { margin: 1rem 0; background: #fff; color: #1b1b1b; border: 1px solid var(--line); border-radius: 6px;
  padding: .5rem; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; } figcaption { font-weight: 600; }
@media (max-width: 48rem) { figure img { max-width: none; } }
code { font-size: 12.5px; overflow-wrap: anywhere; }
"""

TEMPLATE = """
{%- macro values(rows, with_instrument) %}
<div class="box"><table>
<tr>{% if with_instrument %}<th>instrument</th>{% endif %}
<th>case</th><th>NxM</th><th class="n">A {{ sides.a }}</th><th class="n">B {{ sides.b }}</th><th class="n">B/A</th>
<th>interval</th><th class="n">p</th><th class="n">boots</th><th>verdict</th></tr>
{% for row in rows -%}
<tr>{% if with_instrument %}<td>{{ row.instrument }}</td>{% endif %}<td>{{ row.name }}</td><td>{{ row.size }}</td>
<td class="n">{{ amount(row.median_a, row.unit) }}</td><td class="n">{{ amount(row.median_b, row.unit) }}</td>
<td class="n">{{ ratio_text(row.ratio) }}</td><td>{{ interval_text(row) }}</td>
<td class="n">{{ "-" if row.p is none else "%.2g" % row.p }}</td>
<td class="n">{{ row.a|length }} + {{ row.b|length }}</td>
<td class="{{ row.verdict|replace(' ', '-') }}">{{ row.verdict }}</td></tr>
{% endfor -%}
</table></div>
{%- endmacro -%}
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>vmap-rust bench: {{ sides.a }} and {{ sides.b }}</title><style>{{ style }}</style></head><body>
<h1>vmap-rust bench: {{ sides.b }} against {{ sides.a }}</h1>
<p>A is the allocator <b>{{ sides.a }}</b>, B is <b>{{ sides.b }}</b>; each boot measures one of them.
{{ r.set|capitalize }} set of {{ r.started }}, commit {{ r.commit }}. Values are medians over boots; lower is better,
always. NxM is CPUs x threads.</p>
<nav><a href="#losing">Losing cases</a><a href="#plots">Plots</a><a href="#rows">All rows</a>
<a href="#how">How it was taken</a></nav>

<h2 id="verdict">Verdict</h2>
<div class="box"><table><tr><th>instrument</th><th>B against A</th><th>what it counts</th></tr>
{% for name, i in r.instruments.items() -%}
<tr>{% if i.used %}<td><a href="#rows-{{ name }}">{{ name }}</a></td><td>{{ summary(by[name], skips(r, name)|length) }}
{%- if dead(r, name) %}; boots that do not count: {{ dead(r, name)|sum(attribute=1) }}{% endif %}</td>
<td class="wrap">{{ i.what }}</td>
{% else %}<td>{{ name }}</td><td class="soft">not measured</td><td class="wrap soft">{{ i.reason }}</td>{% endif %}</tr>
{% endfor -%}
</table></div>

<h2 id="losing">Losing cases</h2>
{% if losing %}<p>Where {{ sides.b }} is slower or larger, worst first:</p>{{ values(losing, true) }}
{% else %}<p>No row has the verdict "slower".</p>{% endif %}

<h2 id="plots">Plots</h2>
{% for title, text, images in plots %}
<h3>{{ title }}</h3>
{% if images %}
<p class="soft">{{ text }}</p>
{% for caption, svg in images %}
<figure><figcaption>{{ caption }}</figcaption><img alt="{{ caption }}" src="{{ svg }}"></figure>
{% endfor %}
{% else %}
<p class="soft">Not measured in this set.</p>
{% endif %}
{% endfor %}

<h2 id="rows">All rows</h2>
<p class="soft">The ratio is Hodges-Lehmann's, with its {{ level }} interval; p is of the rank sum test, two-sided;
boots are those of A + B that count.</p>
{% for name, i in r.instruments.items() if i.used or dead(r, name) %}
<h3 id="rows-{{ name }}">{{ name }}</h3>
{% if i.used %}
<p>{{ i.what }}<br>{{ summary(by[name], skips(r, name)|length) }}</p>
{% if by[name] %}{{ values(by[name], false) }}{% endif %}
{% endif %}
{% if skips(r, name) %}
<h4>Skipped</h4>
<ul>{% for case, size, reason in skips(r, name) %}<li>{{ case }} {{ size }}: {{ reason }}</li>{% endfor %}</ul>
{% endif %}
{% if dead(r, name) %}
<h4>Boots that do not count</h4>
<ul>{% for which, _, status in dead(r, name) %}<li>{{ which }}: {{ status }}</li>{% endfor %}</ul>
{% endif %}
{% endfor %}

<h2 id="how">How it was taken</h2>
<div class="box"><table>
{% for name, value in facts %}<tr><th>{{ name }}</th><td class="wrap">{{ value }}</td></tr>
{% endfor %}</table></div>
<h3>Kernels</h3>
<div class="box"><table><tr><th>kernel</th><th>version</th><th>config hash</th><th>compiler</th>
<th class="n">text</th><th class="n">data</th><th class="n">bss</th><th>options</th></tr>
{% for name, k in r.kernels.items() %}
<tr><td>{{ name }}</td><td>{{ k.version }}</td><td>{{ k.config_hash }}</td><td class="wrap">{{ k.compiler }}</td>
<td class="n">{{ amount(k.text) }}</td><td class="n">{{ amount(k.data) }}</td><td class="n">{{ amount(k.bss) }}</td>
<td class="wrap">{% for option, value in k.options.items() -%}
<code>{{ option }}={{ value }}</code> {% endfor %}</td></tr>
{% endfor %}</table></div>
<h3>Boots</h3>
<div class="box"><table><tr><th>instrument</th><th>kernel</th><th>plan</th><th class="n">CPUs</th>
<th class="n">good, A + B</th><th class="n">seconds</th><th>seeds</th><th>command of the first</th></tr>
{% for b in boots %}
<tr><td>{{ b.instrument }}</td><td>{{ b.kernel }}</td><td>{{ b.plan }}</td><td class="n">{{ b.cpus }}</td>
<td class="n">{{ b.a }} + {{ b.b }}</td><td class="n">{{ amount(b.seconds) }}</td>
<td class="wrap">{{ b.seeds|join(", ") }}</td><td class="wrap"><code>{{ b.command }}</code></td></tr>
{% endfor %}</table></div>
<h3>What the instruments cannot show</h3>
<ul>
<li>QEMU's TCG is no silicon: it has no caches, no branch prediction and not the memory order of a real CPU, and atomic
operations cost something else in it. Its seconds rank variants of a code path; they are no seconds of a machine.</li>
<li>With -icount all CPUs take turns on one thread of the host: who waits for another CPU executes instructions, so
waiting shows as instructions, and what it costs when the holder of a lock loses its turn (lock-holder preemption) is
overstated.</li>
<li>A verdict is about these kernel images on this host. Of many rows without a difference about one in
{{ "%.0f"|format(1 / alpha) }} has p below {{ alpha }}; it gets a verdict only when it is {{ floor }} or more
as well.</li>
</ul>
</body></html>
"""


def inline(svg):
    """A data: URI of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def sections(result, rows):
    """(title, explanation, images) of each kind of plot, images as data URIs."""
    ratio = ("Point: ratio; bar: interval; grey band: below the floor of a verdict. "
             "Rows without a ratio are in the tables only.")
    median = "Medians; bars from the smallest to the largest boot."
    share = "Share of all operations that took at least so long, all boots together."
    kinds = (("Ratio of each case", ratio, plots.ratios(result, rows)),
             ("Scaling with threads", median, plots.scaling(result, rows)),
             ("Latency", share, plots.latency(result)),
             ("Memory", median, plots.memory(result, rows)),
             ("Page tables", median, plots.page_tables(result, rows)))
    return [(title, text, [(caption, inline(svg)) for caption, svg in images]) for title, text, images in kinds]


def facts(result):
    """How the result was taken: (what, value)."""
    host = result["host"]
    return [("command", result["command"]), ("set", result["set"]), ("commit", result["commit"]),
            ("started, finished", f"{result['started']}, {result['finished']}"),
            ("host", f"{host['cpu']}, {host['cpus']} CPUs, {stats.amount(host['mem_mib'])} MiB"),
            ("host's kernel, QEMU", f"Linux {host['kernel']}, QEMU {host['qemu']}"),
            ("alpha", f"{stats.ALPHA}: a verdict needs p below it (rank sum test, two-sided)"),
            ("floor", f"{stats.FLOOR:.0%}: a verdict needs a ratio at least so far from 1"),
            ("boots", f"{stats.FEW}: fewer good boots on a side are too few for a verdict")]


def plans(result):
    """One row per instrument, plan and number of CPUs: good boots of each side, seconds, seeds, a command."""
    found = {}
    for boot in result["boots"]:
        row = found.setdefault((boot["instrument"], boot["plan"], boot["cpus"]), {
            **{key: boot[key] for key in ("instrument", "plan", "cpus", "command")},
            "kernel": result["instruments"][boot["instrument"]].get("kernel", "-"), "a": 0, "b": 0,
            "seconds": 0, "seeds": []})
        row[boot["side"]] += boot["status"] == "ok"
        row["seconds"] += boot["seconds"]
        if boot["seed"] not in row["seeds"]:
            row["seeds"].append(boot["seed"])
    return list(found.values())


def page(result):
    """The page as text."""
    rows = stats.rows(result)
    by = {name: [row for row in rows if row.instrument == name] for name in stats.used(result)}
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE).render(
        r=result, sides=result["sides"], style=Markup(STYLE), losing=[row for row in rows if row.verdict == "slower"],
        by=by, plots=sections(result, rows), facts=facts(result), boots=plans(result), level=f"{stats.LEVEL:.0%}",
        alpha=stats.ALPHA, floor=f"{stats.FLOOR:.0%}", amount=stats.amount, ratio_text=stats.ratio_text,
        interval_text=stats.interval_text, summary=stats.summary, skips=stats.skips, dead=stats.dead)
