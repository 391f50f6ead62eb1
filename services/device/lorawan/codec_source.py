"""Analysis of a script's text: how the engine must run it. No I/O.

Calls share built-in objects, which are frozen. A script that changes one (a polyfill, a helper on a
prototype) needs it changeable: the engine then compares and restores it after each call, at 0.6 µs
per property. Isolation does not depend on this analysis: an object that it misses stays frozen, and
one that it lists needlessly only costs time.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

_CONSTRUCTOR_NAMES = (
    "AggregateError|Array|ArrayBuffer|BigInt|BigInt64Array|BigUint64Array|Boolean|Buffer|DataView"
    "|Date|Error|EvalError|Float32Array|Float64Array|Function|Int16Array|Int32Array|Int8Array"
    "|Iterator|Map|Number|Object|Promise|Proxy|RangeError|ReferenceError|RegExp|Set|String|Symbol"
    "|SyntaxError|TypeError|URIError|Uint16Array|Uint32Array|Uint8Array|Uint8ClampedArray|WeakMap"
    "|WeakSet"
)
_OBJECT_NAMES = f"{_CONSTRUCTOR_NAMES}|JSON|Math|Reflect|console"
_GLOBAL_NAMES = (
    f"{_OBJECT_NAMES}|atob|btoa|decodeURI|decodeURIComponent|encodeURI|encodeURIComponent|escape|eval"
    "|isFinite|isNaN|parseFloat|parseInt|unescape|exports|module"
)
ALL_BUILT_INS = ["*"]
"""Value of `changeable` for all built-in objects."""
COMMON_PROTOTYPES = [
    f"{name}.prototype"
    for name in ("Object", "Array", "String", "Number", "Boolean", "Function", "Date", "RegExp")
]
"""Prototypes that a script can reach without their constructors."""
MAX_CHECKED_NAMES = 500
"""Maximum declared names of a script that can be read as properties of the global object."""

MAX_CACHED_SCRIPTS = 16
"""Number of analysed scripts in the cache."""

_COMMENT_OR_LITERAL = re.compile(
    r"""
    /\*.*?\*/ | (?:(?<=[\s;{},)]) | ^) //[^\n]*                  # comments
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `(?:[^`\\]|\\.)*`  # texts
    | (?:(?<=[(,=:\[!&|?{};+\-*%<>~^\n]) | (?<=return))[ \t]*
      /(?![*/])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/        # patterns
    """,
    re.VERBOSE | re.DOTALL,
)
_TEMPLATE_EXPRESSION = re.compile(r"\$\{([^{}]*)\}")
_ASSIGNMENT = r"(?:(?:[-+*/%&|^]|\*\*|<<|>>>?|&&|\|\||\?\?)?=(?![=>])|\+\+|--)"
_OBJECT_USE = re.compile(
    rf"""
    (?<![\w$])(?P<name>{_OBJECT_NAMES})(?![\w$])
    (?P<prototype>\s*\.\s*prototype\b)?
    (?P<member>\s*\??\.\s*[\w$]+)?
    (?P<then>\s*(?:{_ASSIGNMENT}|[(\[{{])?)
    """,
    re.VERBOSE,
)
_READ_PREFIX = re.compile(r"\b(?:new|instanceof|typeof|extends|function|class)\s+$")
_DELETION_PREFIX = re.compile(r"\bdelete\s+$|(?:\+\+|--)\s*$")
_PROTOTYPE_ACCESS = re.compile(
    r"__proto__|\bgetPrototypeOf\b|\.\s*constructor\b(?!\s*(?:=|!=|&&|\)|\.\s*name\b))"
)
_ARRAY_METHOD_ASSIGNMENT = re.compile(
    r"\.\s*(at|concat|copyWithin|entries|every|fill|filter|find|findIndex|findLast|findLastIndex|flat"
    r"|flatMap|forEach|includes|indexOf|join|keys|lastIndexOf|map|pop|push|reduce|reduceRight|reverse"
    rf"|shift|slice|some|sort|splice|unshift|values|with)\s*{_ASSIGNMENT}"
)
"""Assignments of methods to a single array, which a frozen `Array.prototype` would prevent."""
_COMMON_METHOD_ASSIGNMENT = re.compile(
    rf"\.\s*(apply|bind|call|toLocaleString|toString)\s*{_ASSIGNMENT}"
)
"""Assignments of methods that arrays share with functions and other objects."""
_DECLARATION = re.compile(r"\b(?:function\s*\*?|var)\s+([A-Za-z_$][\w$]*)")
_DECLARATION_LIST = re.compile(r"\bvar\s+([\w$]+[^;,\n(){}\[\]]*(?:,\s*[\w$]+[^;,\n(){}\[\]]*)*)")
_LEXICAL_DECLARATION = re.compile(
    rf"\b(?:let|const|class)\s+(?:[^;=()]*,\s*)?({_GLOBAL_NAMES})(?![\w$])"
)
_BUILT_IN_NAME = re.compile(_GLOBAL_NAMES)
_GLOBAL_ASSIGNMENT = re.compile(rf"(?<![\w$])({_GLOBAL_NAMES})\s*{_ASSIGNMENT}")
_BUFFER_DECLARATION = re.compile(r"\b(?:function|class|let|const)\s+Buffer\b")
_EVALUATION_CALL = r"\bFunction\s*\(|\.\s*constructor\s*\(|\beval\b"
_GLOBAL_OBJECT_USE = re.compile(rf"\bglobalThis\b|\bthis\b|{_EVALUATION_CALL}")
_COMPUTED_GLOBAL_USE = re.compile(rf"\b(?:globalThis|this)\s*\[|{_EVALUATION_CALL}")
_OBJECT_NAME_TEXT = re.compile(rf"[\"'`]({_OBJECT_NAMES})[\"'`]")
_MEMBER_NAME = re.compile(r"""[."'`]\s*([\w$]+)""")
_EXPORT_DECLARATION = re.compile(
    r"(?:^|(?<=[;}]))[ \t]*export\b\s*(?:\{([^}]*)\};?"
    r"|(?:default\s+)?(?=(?:async\s+)?(?:function|class|const|let|var)\b)|default\b)",
    re.MULTILINE,
)
_RENAMED_EXPORT = re.compile(r"([\w$]+)\s+as\s+([\w$]+)")
_STRICT_DIRECTIVE = re.compile(r"""(?:\s|//[^\n]*\n|/\*.*?\*/)*(["'])use strict\1""", re.DOTALL)


class AnalysedScript(msgspec.Struct, frozen=True):
    """A script and how the engine must run it."""

    source: str
    strict: bool
    exports: bool
    """Whether it needs `module` and `exports`."""
    parameters: list[str]
    """Built-in names that it declares again with `var`."""
    replaced: list[str]
    """Built-in names that it assigns, alone or as properties of the global object."""
    globals: list[str]
    """Names that it declares and reads through the global object."""
    changeable: list[str]
    """Built-in objects that it changes: `Math`, `Array.prototype`."""
    buffer: bool
    """Whether it needs `Buffer`."""


@lru_cache(MAX_CACHED_SCRIPTS)
def analyse_script(source: str) -> AnalysedScript:
    """Analyse a script; a module becomes a strict script."""
    source, exports = _EXPORT_DECLARATION.subn(_replace_export, source)
    if exports:
        source = f'"use strict";{source}'
    code = _COMMENT_OR_LITERAL.sub(_blank_match, source)
    lexical, declared = set(_LEXICAL_DECLARATION.findall(code)), _DECLARATION.findall(code)
    buffer = "Buffer" in code and _BUFFER_DECLARATION.search(code) is None
    run = source if re.search(_EVALUATION_CALL, code) else code  # evaluated text is code, too
    changed = {*_find_changed_paths(run), *_find_objects_named_in_strings(source, code)} - (
        set() if buffer else {"Buffer", "Buffer.prototype"}
    )
    return AnalysedScript(
        source=source,
        strict=_STRICT_DIRECTIVE.match(source) is not None,
        exports=re.search(r"\b(?:exports|module)\b", code) is not None,
        parameters=sorted({name for name in declared if _BUILT_IN_NAME.fullmatch(name)} - lexical),
        replaced=sorted(set(_GLOBAL_ASSIGNMENT.findall(code)) - lexical),
        globals=sorted(_find_global_reads(source, code)),
        changeable=sorted(changed),
        buffer=buffer,
    )


def _replace_export(match: re.Match[str]) -> str:
    """Return the replacement for an export declaration of a script."""
    if match[0].endswith("default"):
        return "exports.default ="
    return "".join(
        f";exports.{new} = {old};" for old, new in _RENAMED_EXPORT.findall(match[1] or "")
    )


def _blank_match(match: re.Match[str]) -> str:
    text = match[0].lstrip()
    if text.startswith(("/*", "//")):
        return " "
    return f'"" {" ".join(_TEMPLATE_EXPRESSION.findall(text))}' if text.startswith("`") else '""'


def _find_changed_paths(code: str) -> Iterator[str]:
    """Yield paths of built-in objects that code may change."""
    if _PROTOTYPE_ACCESS.search(code):
        yield from COMMON_PROTOTYPES
    if _ARRAY_METHOD_ASSIGNMENT.search(code):
        yield "Array.prototype"
    if _COMMON_METHOD_ASSIGNMENT.search(code):
        yield from ("Array.prototype", "Function.prototype")
    for use in _OBJECT_USE.finditer(code):
        name, then = use["name"], use["then"].strip()
        before = code[max(use.start() - 16, 0) : use.start()]
        assigned = then not in ("", "(", "[", "{") or _DELETION_PREFIX.search(before) is not None
        prototype = f"{name}.prototype"
        if use["prototype"]:
            if assigned or not use["member"]:
                yield prototype
        elif use["member"]:
            if assigned:
                yield from (name, prototype)
        elif then != "(" and not _READ_PREFIX.search(before):
            yield from (name, prototype)


def _find_objects_named_in_strings(source: str, code: str) -> Iterator[str]:
    """Yield built-in objects that code can reach by names in strings."""
    if _COMPUTED_GLOBAL_USE.search(code):
        for name in _OBJECT_NAME_TEXT.findall(source):
            yield from (name, f"{name}.prototype")


def _find_global_reads(source: str, code: str) -> set[str]:
    """Return declared names that code may read as properties of the global object."""
    if not _GLOBAL_OBJECT_USE.search(code):
        return set()
    outside = _outside_braces(code)
    declared = set(_DECLARATION.findall(outside))
    for names in _DECLARATION_LIST.findall(outside):
        declared |= {re.split(r"[^\w$]", name.strip())[0] for name in names.split(",")}
    if not _COMPUTED_GLOBAL_USE.search(code):
        declared &= set(_MEMBER_NAME.findall(source))
    return set(sorted(declared)[:MAX_CHECKED_NAMES])


def _outside_braces(code: str) -> str:
    """Return the code outside blocks, functions and objects."""
    depth, outside = 0, []
    for piece in re.split("([{}])", code):
        if piece in ("{", "}"):
            depth += 1 if piece == "{" else -1
        elif depth == 0:
            outside.append(piece)
    return " ".join(outside)
