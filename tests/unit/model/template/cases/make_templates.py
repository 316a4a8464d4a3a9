"""Writes templates.json: what Jinja makes of small templates, in the environment that transformers renders chats in. `pip install jinja2`, then run it
from anywhere. A case is [source, text], or [source, null] where Jinja refuses."""
import datetime
import json
import os

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VALUES = {"s": "Hello World", "t": "  a b  c ", "n": 42, "f": 2.5, "z": None, "yes": True, "l": [3, 1, 2], "d": {"b": 1, "a": "x"}, "e": "", "h": "<a href='x'>\"T\" & co</a>",
          "m": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "n": 2}, {"role": "user", "content": "Bye", "n": 1}],
          "w": ["banana", "Apple", "cherry", "apple"], "u": "İstanbul ΑΣ ß ﬁ ǆ", "long": "The quick brown fox jumps over the lazy dog and runs away"}

EXPRESSIONS = r"""
'{} and {}'.format(1, 'x') | '{1}{0}'.format('a', 'b') | '{x}-{y}'.format(x=1, y=s) | '{:>6}|{:<6}|{:^6}'.format('a', 'b', 'c') | '{:05d}|{:+d}|{:x}|{:#x}|{:b}'.format(42, 42, 255, 255, 5)
'{:.2f}|{:8.3f}|{:e}|{:g}|{:%}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25) | '{:,}|{:_}'.format(1234567, 1234567) | '{0[a]}|{0[b]}'.format(d) | '{!r}|{!s}'.format('q', 'q')
'{{}}'.format() | '{:{}}|'.format('x', 5) | '{:*^9}'.format('mid') | '{}'.format(none) | '{}'.format([1, 'a']) | '{}'.format(true) | '{:.3}'.format('abcdef') | '{:d}'.format(true)
'{:s}'.format('a') | '{:c}'.format(65) | '{:,.2f}'.format(1234567.891) | '{:06.2f}'.format(3.14159) | '{:-^20}'.format(' hi ') | '{}'.format(2.0) | '{:5}|'.format(42) | '{:<5}|'.format(42)
'{'.format() | '{}'.format() | '{a}'.format(b=1) | '{:d}'.format('x') | '{:s}'.format(1)
'ff' | int(0, 16) ;; '0x1f' | int(0, 16) ;; '777' | int(base=8) ;; '0b11' | int(0, 2) ;; 'zz' | int(7, 36) ;; 'xx' | int(5, 10) ;; '12' | int ;; ' 12 ' | int ;; '1_000' | int ;; '3.9' | int ;; '1e3' | int ;; 'nan' | int(3)
n | int ;; f | int ;; z | int(9) ;; '-7' | int ;; '+7' | int ;; '0x10' | int(1) ;; '' | int ;; '1__0' | int(2) ;; true | int ;; '12' | float ;; 'inf' | float ;; 'a' | float(1.5) ;; '1_0.5' | float
'hello'.find('l', 3) | 'hello'.find('l', -2) | 'hello'.find('h', 1) | 'hello'.find('', 9) | 'hello'.find('', 5) | 'hello'.rfind('l', 0, 3) | 'hello'.rfind('l') | 'hello'.index('l') | 'hello'.rindex('l') | 'hello'.index('z')
'hello'.startswith('l', 2) | 'hello'.startswith('h', 1) | 'hello'.startswith(('x', 'he')) | 'hello'.endswith('l', 0, 4) | 'hello'.endswith('') | 'hello'.startswith('', 9) | 'hello'.count('l', 3) | 'hello'.count('') | 'aaaa'.count('aa')
t.split() | t.split(none, 1) | t.split(none, 0) | t.split(' ', 1) | t.split(maxsplit=1) | t.rsplit(none, 1) | t.rsplit() | t.rsplit(' ', 1) | 'a,b,c'.rsplit(',', 1) | ','.split(',') | ''.split() | ''.split(',')
'a.b.c'.partition('.') | 'a.b.c'.rpartition('.') | 'abc'.partition('.') | 'abc'.rpartition('.') | 'a\nb\r\nc'.splitlines() | 'a\nb\r\nc\n'.splitlines(true) | ''.splitlines()
'ab'.ljust(5) ~ '|' | 'ab'.rjust(5, '.') | '-5'.zfill(5) | '5'.zfill(3) | '+5'.zfill(1) | 'ab'.center(5, '*') | 'abc'.center(6, '*') | 'a'.center(4) ~ '|' | 'ab'.ljust(1)
u.lower() | u.upper() | u.title() | u.capitalize() | u.swapcase() | 'ΣΑΣ Σ'.lower() | 'it\'s a TEST'.title() | 'aBC'.swapcase() | 'ŉ'.upper() | 'ffi ﬃ'.upper() | 'x'.upper().lower()
'²'.isdigit() | '²'.isdecimal() | '½'.isnumeric() | '½'.isdigit() | 'Ⅷ'.isnumeric() | 'Ⅷ'.isalpha() | '٣'.isdigit() | 'a1'.isalnum() | 'a 1'.isalnum() | ''.isascii() | 'é'.isascii() | 'ab'.isascii() | ''.isalpha()
'Ab'.isupper() | 'AB1'.isupper() | 'ab1'.islower() | '1'.islower() | ' \t'.isspace() | 'pre-fix'.removeprefix('pre-') | 'pre-fix'.removesuffix('fix') | 'x'.removeprefix('y')
'a-b-c'.replace('-', '+', 1) | 'abc'.replace('', '.') | 'aaa'.replace('aa', 'b') | '-'.join(['a', 'b']) | '-'.join('abc') | 'xxaxx'.strip('x') | 'xxaxx'.lstrip('x') | 'xyaxy'.rstrip('yx')
long | truncate(20) ;; long | truncate(20, true) ;; long | truncate(20, true, '…') ;; long | truncate(20, false, '...', 0) ;; s | truncate(9, true, '', 0) ;; s | truncate(3) ;; s | truncate(255) ;; s | truncate(10, leeway=0)
l | slice(2) | list ;; l | slice(2, 'x') | list ;; [1, 2, 3, 4, 5, 6, 7] | slice(3) | list ;; [1, 2, 3, 4, 5, 6, 7] | batch(3) | list ;; [1, 2, 3, 4, 5, 6, 7] | batch(3, 0) | list ;; [] | batch(2) | list ;; 'abcde' | batch(2) | list
s | center(21) ~ '|' ;; s | center ~ '|' ;; s | center(width=14) ~ '|' ;; n | center(6) ~ '|'
long | wordwrap(20) ;; long | wordwrap(20, true, '|') ;; 'aaaaaaaaaabbbbbbbbbbcc dd' | wordwrap(10) ;; 'aaaaaaaaaabbbbbbbbbbcc dd' | wordwrap(10, false) ;; 'a\n\nb  c' | wordwrap(3) ;; '' | wordwrap ;; '  lead and trail  ' | wordwrap(8) ;; '  lead and tCCCCCCCCCCCCCCCCCCCCrail  ' | wordwrap(4) ;; 'ab cdefghij' | wordwrap(2) ;; '   ab cd' | wordwrap(2) ;; '    ' | wordwrap(2) ;; 'a   b' | wordwrap(2) ;; '  a  bb ccc dddd' | wordwrap(3) ;; 'abcd ef' | wordwrap(1) ;; ' aaaa' | wordwrap(1) ;; 'abc  defghi jk' | wordwrap(4, false)
m | groupby('role') | list ;; m | groupby('n', default=0) | map('first') | list ;; w | groupby('0') | list ;; m | groupby('role') | map(attribute='grouper') | join(',') ;; m | groupby('role') | map(attribute='list') | map('length') | list
s | urlencode ;; 'a/b c?d=é&f' | urlencode ;; d | urlencode ;; {'a b': 'c/d', 'n': 1} | urlencode ;; [('x', 'y z')] | urlencode ;; n | urlencode
h | striptags ;; '<p>a  <b>b</b>\n c</p><!-- x -->d' | striptags ;; '&lt;a&gt; &amp; &#39;b&#x41;' | striptags ;; 'plain' | striptags
h | e ;; h | escape | e ;; h | e | forceescape ;; (h | safe) ~ '<' ;; h | safe | e ;; 'x' | safe + '<' ;; '<' + ('x' | safe) ;; ('<b>' | safe) + '<i>' ;; ('%s' | safe) % '<' ;; ('%s' | safe) % ('<',) ;; ('<' | safe) * 2
(h | e) is escaped ;; h is escaped ;; (h | safe) is escaped ;; (h | safe).upper() is escaped ;; (h | safe)[1:] is escaped ;; (h | safe | upper) is escaped ;; (h | e | length) ;; ('<' | safe) == '<' ;; [('<' | safe), '<'] | join('&') ;; ('<' | e) ~ '<'
('<' | safe) | tojson ;; ('a<b' | safe).replace('a', '<') ;; ('{}<' | safe).format('<') ;; ('&' | safe).join(['<', 'x']) ;; ('<' | safe | trim) is escaped ;; ('<' | safe | string) is escaped ;; ('<' | safe | capitalize) is escaped ;; ('<x' | safe).strip('x') is escaped
d | attr('a') ;; d | attr('items') is callable ;; m[0] | attr('role') is defined ;; 'x' | attr('upper') is callable ;; d | attr('keys') is defined
range(3) ;; range(1, 3) ;; range(0, 9, 2) ;; range(5, 2) ;; range(3) | list ;; range(3)[1:] ;; range(3)[0] ;; range(3) == [0, 1, 2] ;; range(3) == range(3) ;; range(3) is sequence ;; range(3) is iterable ;; range(3) | length ;; 2 in range(3) ;; range(4)[::2]
namespace(a=1) ;; namespace(a=1, b='x') ;; namespace() ;; namespace({'k': 1}) ;; namespace(a=1).a ;; namespace(a=1) is mapping
{(1, 2): 'x'}[(1, 2)] ;; {(1, 'a'): 1} ;; {1: 'a', '1': 'b'} ;; {none: 1}[none] ;; (1, 2) in {(1, 2): 3} ;; {1.0: 'a'}[1] ;; {true: 'a'}[1] ;; {[1]: 2} ;; {(1, [2]): 3}
d | pprint ;; l | pprint ;; s | pprint ;; {'b': 1, 'a': [1, 'x']} | pprint ;; none | pprint ;; n | pprint
w | sort ;; w | sort(case_sensitive=true) ;; w | sort(reverse=true) ;; m | sort(attribute='content') | map(attribute='content') | list ;; m | map(attribute='n', default=0) | list ;; w | unique | list ;; w | min ;; w | max ;; l | sum ;; m | sum(attribute='n', start=10)
d | dictsort ;; d | items | list ;; d | list ;; d.items() | list ;; d.keys() | list ;; d.values() | list ;; d.get('q', 5) ;; d.get('a') ;; d['q'] is defined ;; d | length ;; 'a' in d ;; d | tojson ;; d | tojson(indent=2)
l | first ;; l | last ;; l | reverse | list ;; 'abc' | reverse ;; l | join('-') ;; m | join('|', attribute='role') ;; l | map('string') | join ;; l | select('odd') | list ;; l | reject('odd') | list ;; m | selectattr('n') | list | length ;; m | rejectattr('role', 'equalto', 'user') | list | length
f | round ;; 2.675 | round(2) ;; 3.5 | round ;; -1.5 | round ;; 42 | round(1) ;; 2.1 | round(0, 'ceil') ;; 2.9 | round(method='floor') ;; -3 | abs ;; f | abs ;; 'abc def' | wordcount ;; s | replace('o', '0') ;; s | replace('o', '0', 1) ;; s | title ;; 'a-b (c' | title ;; s | upper ;; s | capitalize
7 // 2 ;; -7 // 2 ;; 7 % -3 ;; 2 ** 10 ;; 2 ** -1 ;; 7 / 2 ;; 1e16 ;; 1e15 ;; 0.1 + 0.2 ;; 1.0 ;; 1e-5 ;; 10 ** 2 ;; 5 % 3 ;; 'a' * 3 ;; [1] * 2 ;; 'a' ~ 1 ~ none ;; 1 < 2 < 3 ;; 1 == 1.0 ;; 'a' < 'b' ;; not 1 ;; 1 if 0 ;; 1 and 0 ;; 0 or 'x'
s[0] ;; s[-1] ;; s[1:4] ;; s[::-1] ;; s[:5:2] ;; l[1:] ;; l[::-1] ;; l[-1] ;; (1, 2, 3)[1:] ;; s[99] is defined ;; l[99] is defined ;; s[3:1] ;; l[-2:] ;; s.upper().lower() ;; s | length ;; 'é' | length
z is none ;; z is defined ;; q is defined ;; q is undefined ;; s is string ;; n is number ;; n is integer ;; f is float ;; yes is boolean ;; yes is true ;; l is sequence ;; d is mapping ;; d is iterable ;; n is even ;; n is divisibleby 7 ;; n is gt 3 ;; 'a' is in 'abc' ;; 'a' is in ['a'] ;; s is sameas s ;; 1 is sameas true ;; 'upper' is filter ;; 'nope' is filter ;; 'odd' is test ;; 'ABC' is upper ;; 'abc' is lower
'a\tb\'c' ;; ['a\tb\'c', "q\"'"] ;; ['é', '\x00', '\u200b'] ;; (1,) ;; () ;; [none, true, 1.0] ;; {'a': [1, {'b': ()}]} ;; [q] ;; 'x' ~ q ;; q ;; [1, 2] | string ;; none | string
'%s is %d' % ('a', 3) ;; '%05.2f' % 3.14159 ;; '%5s|%-5s|' % ('a', 'b') ;; '%x' % 255 ;; '%%' % () ;; '%r' % 'a' ;; '%s' % [1] ;; '%s %s' | format('a', 'b') ;; '%(a)s' | format(a=1)
'a' | indent ;; 'a\nb\n\nc' | indent ;; 'a\nb' | indent(2, true) ;; 'a\n\nb' | indent(2, blank=true) ;; 'a\nb' | indent('> ') ;; 'x' | default('y') ;; q | default('y') ;; e | default('y', true) ;; z | d('y') ;; [1, 'é<'] | tojson ;; 'é' | tojson(ensure_ascii=true) ;; {'b': 1, 'a': 2} | tojson(sort_keys=true) ;; [1, [2]] | tojson(separators=(',', ':'))
1 | nope ;; 1 is nope ;; (1 | nope) if false else 2 ;; 2 if true else (1 | nope) ;; nope(1) ;; s.nope() ;; s.nope ;; z.x ;; q.x ;; 1 + 'a' ;; 'a' + 1 ;; [] + {} ;; l['a'] is defined
"""

STATEMENTS = [
    "{% if false %}{{ 1 | from_json }}{% else %}ok{% endif %}", "{% if true %}{{ 1 | from_json }}{% endif %}", "{% if false %}{{ 1 is from_json }}{% endif %}ok",
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}-{{ varargs }}-{{ kwargs }}{% endmacro %}{{ f(1) }}|{{ f(1, 3, 4, 5, x=6) }}|{{ f(b=9, a=8) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=2) }}",
    "{% macro f(a, b=1) %}{% endmacro %}{{ f.name }} {{ f.arguments }} {{ f.catch_kwargs }} {{ f.catch_varargs }} {{ f.caller }} {{ f }}",
    "{% macro f(a) %}{{ varargs | length }}{% endmacro %}{{ f.catch_varargs }}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{% endcall %}",
    "{% macro f(x) %}{{ x }}:{{ caller(1, 'b') }}{% endmacro %}{% call(a, b='z') f('q') %}{{ a }}/{{ b }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}in{% endcall %}",
    "{% macro f() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ f() }}{% call f() %}c{% endcall %}",
    "{% macro g(a) %}({{ a }}){% endmacro %}{% macro f() %}{% call g(1) %}{% endcall %}{% endmacro %}{{ f() }}",
    "{% for k, v in m | groupby('role') %}{{ k }}:{{ v | map(attribute='content') | join(',') }};{% endfor %}", "{% for g in m | groupby('role') %}{{ g.grouper }}={{ g.list | length }};{% endfor %}",
    "{% for row in [1, 2, 3, 4, 5] | batch(2, '-') %}{{ row | join(' ') }}\n{% endfor %}", "{% for col in [1, 2, 3, 4, 5] | slice(3) %}{{ loop.index }}:{{ col }} {% endfor %}",
    "{% for i in range(3) %}{{ loop.index }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }} {% else %}no{% endfor %}", "{% for i in [] %}{% else %}no{% endfor %}",
    "{% for i in range(5) if i is odd %}{{ i }}{{ loop.length }}{% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set ns = namespace(x=1) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x %}a{{ 1 }}{% endset %}{{ x }}{{ x is escaped }}",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% with a=1, b=2 %}{{ a + b }}{% endwith %}{{ a }}", "  {% if true %}\n  a\n  {% endif %}\nb", "{%- if true -%}  x  {%- endif -%}  y",
    "{{ raise_exception('no') }}", "{% raw %}{{ x }}{% endraw %}", "{# c #}a", "{{ '{{' }}", "a{{- ' b ' -}} c", "{{ m | map(attribute='content') | map('upper') | list }}", "{{ loop is defined }}",
    "{% for a in m recursive %}x{% endfor %}", "{% for d in [[1, [2]], [3]] %}{{ d }}{% endfor %}", "{% include 'x' %}", "{{ [1, 2, 3] | map('nope') | list }}", "{{ [] | map('nope') | list }}", "{{ dict(a=1, **{'b': 2}) }}",
]


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return env


def render(env, source):
    try:
        return env.from_string(source).render(**json.loads(json.dumps(VALUES)))
    except Exception:
        return None


def sources():
    for line in EXPRESSIONS.strip().splitlines():
        for part in line.split(" ;; ") if " ;; " in line else line.split(" | "):
            yield "{{ " + part.strip() + " }}"
    yield from STATEMENTS


def main():
    env = environment()
    rows = [json.dumps([s, render(env, s)], ensure_ascii=False) for s in sources()]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates.json"), "w") as f:
        f.write('{"variables": ' + json.dumps(VALUES, ensure_ascii=False) + ',\n"cases": [\n' + ",\n".join(rows) + "\n]}\n")


main()
