/* What expressions and tags give, by the rules of Jinja and of the values of Python. */
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/model/template/render.h"

static const struct {
    const char *source, *expected;
} cases[] = {
    {"{{ a }}|{{ b }}|{{ f }}|{{ g }}|{{ h }}|{{ z }}|{{ n }}|{{ t }}|{{ l }}|{{ d }}|{{ dd }}",
     "1|2.5|||||None|True|[3, 1, 2]|{'x': 1, 'y': [1, 2], 'k': {'k': 'v'}}|[{'n': 'x', 'v': 2, "
     "'g': 'q'}, {'n': 'Y', 'v': 1}"
     ", {'n': 'a', 'v': None}]"},
    {"{{ d.nope }}|{{ d['nope'] }}|{{ d.x }}|{{ d['y'][1] }}|{{ d.y.1 }}|{{ d.y[-1] }}|{{ d.y[5] "
     "}}",
     "||1|2|2|2|"},
    {"{{ q }} {{ [q, qq, nl, u] }} {{ (1,) }} {{ (1,2) }} {{ () }} {{ [] }} {{ {} }}",
     " [Undefined, Undefined, Undefined, \"žluťoučký 日本 it's\"] (1,) (1, 2) () [] {}"},
    {"{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} "
     "{{ 2 ** -1 }} {{ 7.5 // 2 }"
     "} {{ -7.5 % 2 }} {{ 1/3 }}",
     "5.0 3 -4 2 -2 1024 0.5 3.0 0.5 0.3333333333333333"},
    {"{{ -2 ** 2 }} {{ -a|abs }} {{ 10 - 3 - 2 }} {{ 2 * 3 % 4 }} {{ 1 + True }} {{ not 1 == 2 }} "
     "{{ not a in l }}",
     "4 1 5 2 2 True False"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ 1 == 1.0 }} {{ True "
     "== 1 }} {{ '1' == 1 }} {{ n"
     " == none }} {{ nope == nope2 }}",
     "True False True True True True False True True"},
    {"{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] * 2 + [3] }}",
     "a1None2.0[1] ababab xx [1, 1, 3]"},
    {"{{ 'x' if a else 'y' }} {{ 'x' if e }}|{{ 'x' if e else 'y' if n else 'z' }}", "x |z"},
    {"{{ a and b }} {{ e or 'dflt' }} {{ n or e or 0 }} {{ a and e }}", "2.5 dflt 0 "},
    {"{{ 'lo' in s }} {{ 'x' in d }} {{ 3 in l }} {{ 'q' not in d }} {{ a not in l }} {{ 1 in nope "
     "}}",
     "True True True True False False"},
    {"{{ s[0] }}{{ s[-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ s[:-2] }} {{ s[-3:] }} {{ s[::2] }} {{ "
     "l[::-1] }} {{ l[1:] }} {{ l"
     "[-1:] }} {{ l[5:] }} {{ u[8:10] }} {{ u[::-1] }} {{ l[2:0:-1] }} {{ l[:1] }}",
     "Hd el dlroW olleH Hello Wor rld HloWrd [2, 1, 3] [1, 2] [2] [] ý  s'ti 本日 ýkčuoťulž [2, 1] "
     "[3]"},
    {"{{ s.split() }} {{ s.split('o') }} {{ s.split('l', 1) }} {{ 'a,b,,c'.split(',') }} {{ "
     "''.split() }} {{ ''.split(',') }"
     "} {{ 'a b  c d'.split(none, 2) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ ' a b '.split(' ') }}",
     "['Hello', 'World'] ['Hell', ' W', 'rld'] ['He', 'lo World'] ['a', 'b', '', 'c'] [] [''] "
     "['a', 'b', 'c d'] ['a.b', 'c']"
     " ['', 'a', 'b', '']"},
    {"{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s|replace('o', '0') }} {{ "
     "'abc'.replace('', '-') }} {{ s|rep"
     "lace('l','',2) }}",
     "HeLLo WorLd HeLlo World Hell0 W0rld -a-b-c- Heo World"},
    {"{{ s.startswith('He') }} {{ s.endswith('x') }} {{ s.startswith(('x','H')) }} {{ s.find('o') "
     "}} {{ s.rfind('o') }} {{ s"
     ".find('zz') }} {{ s.count('l') }} {{ u.find('日') }}",
     "True False True 4 7 -1 3 10"},
    {"{{ ', '.join(ls) }} {{ ls|join(', ') }} {{ l|join }} {{ l|join('-') }} {{ dd|join(',', "
     "attribute='n') }} {{ d|join(' '"
     ") }} {{ 'abc'|join('.') }}",
     "b, A, c b, A, c 312 3-1-2 x,Y,a x y k a.b.c"},
    {"{{ l|length }} {{ s|length }} {{ u|length }} {{ d|length }} {{ l|count }} {{ nope|length }}",
     "3 11 17 3 3 0"},
    {"{{ l|first }} {{ l|last }} {{ s|first }} {{ []|first }}| {{ l|sort }} {{ ls|sort }} {{ "
     "ls|sort(reverse=true) }} {{ ls|"
     "sort(case_sensitive=true) }} {{ l|reverse|list }} {{ s|reverse }} {{ "
     "dd|sort(attribute='n')|map(attribute='n')|list }}",
     "3 2 H | [1, 2, 3] ['A', 'b', 'c'] ['c', 'b', 'A'] ['A', 'b', 'c'] [2, 1, 3] dlroW olleH "
     "['a', 'x', 'Y']"},
    {"{{ dd|map(attribute='v')|list }} {{ dd|map(attribute='g', default='none')|list }} {{ "
     "ls|map('upper')|list }} {{ ls|map"
     "('replace','b','B')|join }} {{ dd|map(attribute='g')|list }}",
     "[2, 1, None] ['q', 'none', 'none'] ['B', 'A', 'C'] BAc ['q', Undefined, Undefined]"},
    {"{{ dd|selectattr('v')|map(attribute='n')|list }} {{ dd|selectattr('g','defined')|list|length "
     "}} {{ dd|rejectattr('v','"
     "equalto',2)|map(attribute='n')|list }} {{ dd|selectattr('v','none')|list|length }} {{ "
     "l|select('odd')|list }} {{ l|rej"
     "ect('odd')|list }} {{ l|select('gt', 1)|list }} {{ [0,1,'',2]|select|list }} {{ "
     "dd|selectattr('n','in',['x','a'])|list"
     "|length }}",
     "['x', 'Y'] 1 ['Y', 'a'] 1 [3, 1] [2] [3, 2] [1, 2] 2"},
    {"{% if dd|selectattr('n','eq','zzz') %}gen true{% else %}gen false{% endif %}", "gen true"},
    {"{{ nope|default('D') }} {{ e|default('D') }} {{ e|default('D', true) }} {{ n|default('D') }} "
     "{{ nope|d('x') }} {{ n|de"
     "fault('D', boolean=true) }}",
     "D  D None x D"},
    {"{{ '3.7'|int }} {{ '12'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} "
     "{{ n|int }} {{ '1.5'|float "
     "}} {{ 'x'|float }} {{ 3|float }} {{ ' 42 '|int }} {{ t|int }} {{ '1e3'|float }} {{ '1e3'|int "
     "}}",
     "3 12 0 5 3 -3 0 1.5 0.0 3.0 42 1 1000.0 1000"},
    {"{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0,'ceil') }} {{ "
     "2.9|round(method='floor') }} {{ 3|ro"
     "und }} {{ -5|abs }} {{ -2.5|abs }} {{ 1.005|round(2) }}",
     "2.0 4.0 2.57 3.0 2.0 3 5 2.5 1.0"},
    {"{{ \"a\\nb\\n\\nc\"|indent }} {{ \"a\\nb\"|indent(2, true) }} {{ \"a\\n\\nb\"|indent(2, "
     "blank=true) }} {{ "
     "\"a\\nb\\n\"|indent(2) }}| {"
     "{ \"a\\nb\"|indent('> ') }} {{ \"\"|indent }}| {{ \"\"|indent(2,true) }}|",
     "a\n    b\n\n    c   a\n  b a\n  \n  b a\n  b\n| a\n> b |   |"},
    {"{{ d|dictsort }} {{ {'b':1,'A':2}|dictsort }} {{ {'b':1,'a':2}|dictsort(by='value') }} {{ "
     "{'b':1,'a':2}|dictsort(rever"
     "se=true) }} {{ d|items|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d|list }} {{ "
     "s|list }}",
     "[('k', {'k': 'v'}), ('x', 1), ('y', [1, 2])] [('A', 2), ('b', 1)] [('b', 1), ('a', 2)] "
     "[('b', 1), ('a', 2)] [('x', 1),"
     " ('y', [1, 2]), ('k', {'k': 'v'})] ['x', 'y', 'k'] [1, [1, 2], {'k': 'v'}] ['x', 'y', 'k'] "
     "['H', 'e', 'l', 'l', 'o', '"
     " ', 'W', 'o', 'r', 'l', 'd']"},
    {"{{ [1,1,2,'a','A']|unique|list }} {{ l|sum }} {{ dd|selectattr('v')|sum(attribute='v') }} {{ "
     "l|min }} {{ l|max }} {{ l"
     "s|max }} {{ [1.5,2]|sum }}",
     "[1, 2, 'a'] 6 3 1 3 c 3.5"},
    {"{{ s|upper }} {{ s|lower }} {{ s|capitalize }} {{ 'hello-world foo (bar) it\\'s'|title }} {{ "
     "\"it's\"|title }} {{ \"it's\"."
     "title() }} {{ 'hELLO'.capitalize() }}",
     "HELLO WORLD hello world Hello world Hello-World Foo (Bar) It's It's It'S Hello"},
    {"{{ '<a href=\"x\">&\\'</a>'|e }} {{ '<b>'|safe }} {{ 'a b  c'|wordcount }} {{ "
     "'%s-%d-%.2f-%5d|%-5s|'|format('a', 3, 2.345"
     ", 42, 'x') }} {{ '%s' % 'a' }} {{ '%s %s' % (1, [2]) }} {{ '%%' % () }} {{ '%r' % 'a' }}",
     "&lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;/a&gt; <b> 3 a-3-2.35-   42|x    | a 1 [2] % 'a'"},
    {"{{ 1 is defined }} {{ nope is defined }} {{ nope is undefined }} {{ n is none }} {{ s is "
     "string }} {{ d is mapping }} "
     "{{ l is iterable }} {{ s is iterable }} {{ a is iterable }} {{ l is sequence }} {{ d is "
     "sequence }} {{ a is number }} "
     "{{ t is number }} {{ t is boolean }} {{ t is true }} {{ a is true }} {{ t is false }} {{ 4 "
     "is even }} {{ 4 is odd }} {"
     "{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ a is integer }} {{ b is float }} {{ t "
     "is integer }} {{ 'x' is in "
     "['x'] }} {{ a is not none }} {{ a is eq 1 }} {{ a is equalto(1) }} {{ a is sameas 1 }} {{ "
     "'A' is upper }} {{ 'a' is lo"
     "wer }} {{ range is callable }} {{ nope is iterable }} {{ n is iterable }} {{ a is gt 0 }} {{ "
     "nope is none }} {{ nope i"
     "s string }} {{ s is not mapping and a is defined }}",
     "True False True True True True True True False True True True True True True False False "
     "True False True False True Tr"
     "ue False True True True True True True True True True False True False False True"},
    {"{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 "
     "}}/{{ loop.first }}/{{ loop.l"
     "ast }}/{{ loop.length }}:{{ x }} {{ loop.previtem }} {{ loop.nextitem }} {{ "
     "loop.cycle('o','e') }} {{ loop.depth }}{% "
     "endfor %}",
     "1/0/3/2/True/False/3:3  1 o 12/1/2/1/False/False/3:1 3 2 e 13/2/1/0/False/True/3:2 1  o 1"},
    {"{% for x in [] %}no{% else %}empty{% endfor %} {% for x in l if x > 1 %}{{ x }}:{{ "
     "loop.length }}{% else %}none{% endf"
     "or %} {% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
     "empty 3:22:2 none"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} "
     "{% for c in 'añ' %}{{ c }}"
     ".{% endfor %} {% for a, (b, c) in [[1,[2,3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
     "x=1;y=[1, 2];k={'k': 'v'}; xyk a.ñ. 123"},
    {"{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% "
     "endif %}{{ x }}{% endfor %"
     "} {{ range(3)|list }} {{ range(1,7,2)|list }} {{ range(3,0,-1)|list }}",
     "023 [0, 1, 2] [1, 3, 5] [3, 2, 1]"},
    {"{% for x in nope %}{{ x }}{% else %}ok{% endfor %}", "ok"},
    {"{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }} {% set x = 1 %}{% "
     "if true %}{% set x = 2 %}{%"
     " endif %}{{ x }} {% for i in [1,2] %}{{ zz }}{% set zz = i %}{% endfor %}{{ zz }}",
     "3121 2 "},
    {"{% set ns = namespace(c=0, l=[]) %}{% for i in l %}{% set ns.c = ns.c + i %}{% set ns.l = "
     "ns.l + [i] %}{% endfor %}{{ "
     "ns.c }} {{ ns.l }} {{ ns.zip }} {{ ns['c'] }}",
     "6 [3, 1, 2]  6"},
    {"{% set x, y = 1, 2 %}{{ x }}{{ y }} {% set p = (1, 2) %}{{ p }} {% set (q1, q2) = [3, 4] "
     "%}{{ q1 + q2 }} {% set x = 1,"
     " %}{{ x }}",
     "12 (1, 2) 7 (1,)"},
    {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }} {% set "
     "gl = 1 %}{% macro g() %}{{"
     " gl }}{% set gl2 = 4 %}{{ gl2 }}{% endmacro %}{% set gl = 2 %}{{ g() }}{{ gl2 }}",
     "543210 24"},
    {"{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x }}{% filter upper %}abc {{ s }}{% "
     "endfilter %} {% filter replace('"
     "a','b')|upper %}aa{% endfilter %}",
     "3ABC HELLO WORLD BB"},
    {"{% raw %}{{ raw }} {% if %}{% endraw %} {%- raw -%}  x  {%- endraw -%} y",
     "{{ raw }} {% if %}xy"},
    {"multi #} z", "multi #} z"},
    {"    indented", "    indented"},
    {"after {% if true %} same {% endif %} line", "after  same  line"},
    {"  {%+ if true %} keep{% endif %}", "   keep"},
    {"\t{% if true %}tab{% endif +%}", "tab"},
    {"next", "next"},
    {"a  {{- ' b ' -}}  c", "a b c"},
    {"{%- if true -%}   stripped   {%- endif -%}   end", "strippedend"},
    {"line' }}", "line' }}"},
    {"{{ {'a': {'b': 1}}['a']['b'] }} {{ {'a': {'b': {'c': 2}}}.a.b.c }} {{ {'a':1}.get('a') }} {{ "
     "{'a':1}.get('b', 'def') }"
     "} {{ {'a':1}.get('b') }} {{ dict(a=1, b=2) }} {{ {'a':1, 'a':2} }} {{ {} | length }}",
     "1 2 1 def None {'a': 1, 'b': 2} {'a': 2} 0"},
    {"{% if a == 1 and b == 2.5 %}A{% elif a %}B{% else %}C{% endif %}{% if not a %}A{% elif e "
     "%}B{% else %}C{% endif %}",
     "AC"},
    {"{% if n is none %}{% if e %}x{% else %}y{% endif %}{% endif %}", "y"},
    {"{{ loop }}", ""},
    {"{{ (a, b) }} {{ a, b }} {{ (1) }} {{ ((1,2),3) }}", "(1, 2.5) (1, 2.5) 1 ((1, 2), 3)"},
    {"{{ s | upper | lower | trim | length + 1 }} {{ 5 | string + 'x' }} {{ 'a' ~ 'b' | upper }} "
     "{{ -1 | string }} {{ not e "
     "| length }}",
     "12 5x aB -1 True"},
    {"{{ 'yes' if 'a' in 'abc' and not 'z' in 'abc' else 'no' }} {{ (1 if true else 2) + 3 }} {{ 1 "
     "if false }}",
     "yes 4 "},
    {"{% for i in range(3) -%} {{ i }} {%- if not loop.last -%} , {%- endif -%} {% endfor %}",
     "0,1,2"},
    {"{% for m2 in m %}{% for c in m2.content[:2] %}{{ loop.index }}{{ c }}{% endfor %}{{ "
     "loop.index }}{% endfor %}",
     ""},
    {"{{ 'abc'.isdigit() }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'A1'.isalnum() }} {{ ' "
     "'.isspace() }} {{ 'AB1'.isup"
     "per() }} {{ 'ab'.islower() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ "
     "\"a\\nb\\r\\nc\".splitlines() "
     "}}",
     "False True True True True True True bc ab ['a', 'b', 'c']"},
    {"{{ 'x' * 0 }}|{{ 'x' * -1 }}|{{ [1,2,3][1:2] }}|{{ 'abc'[5:] }}|{{ 'abc'[10] }}|{{ ''[0] is "
     "defined }}",
     "||[2]|||False"},
    {"{{ true }} {{ True }} {{ none }} {{ None }} {{ false and x }} {{ True and 'a' }}",
     "True True None None False a"},
    {"{{ {'a b': 1}['a b'] }} {{ d['x'] + d.x }} {{ d.y | last }} {{ d.get('y')[0] }}", "1 2 2 1"},
    {"{{ [1, 'a', none, true, 1.5, {'k': (1,)}] | string }} {{ {'a': none} | string }} {{ l | "
     "string | length }}",
     "[1, 'a', None, True, 1.5, {'k': (1,)}] {'a': None} 9"},
    {"{%set a=1%}{{a}}{%-set a=2-%}{{a}}", "12"},
    {"{{ u | upper }} {{ 'ŽÁ' | lower }} {{ 'ǆ' | title }}", "ŽLUŤOUČKÝ 日本 IT'S žá Ǆ"},
    {"{{ [[1,2],[3,4]] | map('first') | list }} {{ [[1,2],[3,4]] | map('join', '-') | list }} {{ "
     "[{'a':{'b':1}}] | map(attri"
     "bute='a.b') | list }} {{ [[5,6]] | map(attribute=1) | list }}",
     "[1, 3] ['1-2', '3-4'] [1] [6]"},
    {"{{ 'a' is in 'abc' }} {{ 2 is in [1,2] }} {{ 1 in (1,2) }} {{ 'x' in {'x':1}.keys() }}",
     "True True True True"},
    {"{{ ['a','b'] | tojson }} {{ 'é\"\\\\/' | tojson }} {{ {'é': 'ü', 'n': 1.50, 'l': [1, 2, "
     "{'x': none}]} | tojson(indent=2) "
     "}}",
     "[\"a\", \"b\"] \"é\\\"\\\\/\" {\n  \"é\": \"ü\",\n  \"n\": 1.5,\n  \"l\": [\n    1,\n    "
     "2,\n    {\n      \"x\": null\n    "
     "}\n"
     "  ]\n}"},
    {"{% generation %}gen{{ a }}{% endgeneration %} {% for i in [1] %}{% generation %}{{ i }}{% "
     "endgeneration %}{% endfor %}",
     "gen1 1"},
    {"  {% if true %}\n  x\n  {% endif %}\n\n  y{{ a }}  \n", "  x\n\n  y1  "},
    {"{% if true %}\r\nx\r\n{% endif %}\r\ny\r\n", "x\ny"},
    {"\n{{ a }}\n", "\n1"},
    {" \t{#- x #}\n y", " y"},
    {"x {#+ c #}\ny", "x y"},
    {"{%- for i in [1,2] %}\n  {{- i }}\n{%- endfor %}\n", "12"},
    {"{% set q %}\n x\n{% endset %}\n[{{ q }}]", "[ x\n]"},
    {"a\n   {%+ if true %} keep {% endif +%}\n b", "a\n    keep \n b"},
    {"a{% raw %}\n x {{ }} \n{% endraw %}\nb", "a\n x {{ }} \nb"},
    {"{ a } {% if 1 %}{ {% endif %}", "{ a } { "},
};

TEST(expressions_and_tags_give_what_jinja_gives)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer out = {0};
        struct err e = {0};
        if (render(cases[i].source, values, NULL, &out, &e) < 0)
            fail_msg("%s: %s", cases[i].source, e.text);
        if (strcmp(buffer_cstr(&out), cases[i].expected) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].source, buffer_cstr(&out),
                     cases[i].expected);
        buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_and_tags_give_what_jinja_gives),
    };
    return cmocka_run_group_tests_name("template expressions", tests, NULL, NULL);
}
