"""What the local model server answers in this demo when there is no real provider.

These are keyword and extraction rules, no language model: every answer is computed from the document in the
request, none is stored. `install(server)` gives them to a `fastroai.testing.ModelServer`; the functions above
it are pure and know neither the server nor the shipped tickets.

The rules have one weakness on purpose, so that the review has something to find: see `write_reply`.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, cast

from fastroai.testing import Reply, ToolCall

if TYPE_CHECKING:
    from fastroai.testing import ModelServer, ServedRequest

Category: TypeAlias = Literal[
    "billing",
    "technical",
    "shipping",
    "refund",
    "account",
    "cancellation",
    "feature_request",
    "feedback",
    "privacy",
    "sales",
    "other",
]
Urgency: TypeAlias = Literal["low", "normal", "high"]
Sentiment: TypeAlias = Literal["negative", "neutral", "positive"]


class Classification(TypedDict):
    """What kind of ticket it is."""

    category: Category
    urgency: Urgency
    language: str
    """ISO 639 code; `und` (undetermined) for a text without a word that the rules know."""
    sentiment: Sentiment
    confidence: float
    """0 to 1: how far the best category is ahead of the second, and on how many keywords that rests."""


class Facts(TypedDict):
    """What a ticket says, in its own words."""

    customer_name: str | None
    email: str | None
    order_ids: list[str]
    invoice_ids: list[str]
    amounts: list[str]
    dates: list[str]
    product: str | None
    error_codes: list[str]
    order_status: str | None
    """From the order system, not from the ticket."""
    summary: str
    """One sentence of the ticket."""


class Review(TypedDict):
    """What is wrong with a reply."""

    approved: bool
    issues: list[str]


# --- reading a ticket -------------------------------------------------------------------------------------

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
_HIDDEN_HTML = re.compile(
    r"<!--.*?(?:-->|\Z)|<(style|script|head)\b.*?(?:</\1\s*>|\Z)"
    r"|<(\w+)[^<>]{0,500}display\s*:\s*none[^<>]{0,500}>.*?(?:</\2\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_LINE_TAG = re.compile(r"</?(?:p|br|div|tr|li|h\d|table|ul|ol)(?:\s[^<>]{0,500})?/?>\n?", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:html|body|b|i|em|strong|code|a|span|td|th|tt|font|img)(?:\s[^<>]{0,500})?/?>", re.IGNORECASE
)
_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,20}\b(?:previous|prior|above|earlier|all|your)\b.{0,20}"
    r"\b(?:instructions?|prompts?|rules)\b"
    r"|\b(?:note|message|instructions?) (?:for|to) (?:the )?(?:automated|ai)\b|\byou are now (?:in|an?|the)\b"
    r"|^[ \t]*(?:system|assistant)[ \t]*:|^[ \t]*</?(?:ticket|facts|classification|reply|issues)>",
    re.IGNORECASE | re.MULTILINE,
)
_OLDER_MAIL = re.compile(r"^(?:-----Original Message-----|_{20,})\s*$", re.MULTILINE)

# Names of mail header lines, in the languages that the rules read. The colon may be a wide one (U+FF1A).
_FROM = "From|Von|De|差出人"
_TO = "To|Cc|An|Para|À|宛先"
_DATED = "Date|Sent|Datum|Fecha|日時"
_SUBJECT = "Subject|Betreff|Asunto|Objet|件名"
_HEADER = re.compile(rf"(?:{_FROM}|{_TO}|{_DATED}|{_SUBJECT}|MIME-Version|Content-Type) ?[:\uff1a]")
_PASTED = re.compile(r" {2,}|\t|>|[|_]|--|[EW] \w+:|[a-z][a-z0-9 -]{1,12}: ")
"""The beginning of a line that is quoted, or comes from a log, a program or a table: no prose."""


def visible_text(text: str) -> str:
    """What a person would see of a ticket: no control characters, HTML markup or hidden HTML."""
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if re.search(r"<!--|<(?:html|body|p|div|br)[\s/>]", text, re.IGNORECASE):
        text = html.unescape(_TAG.sub("", _LINE_TAG.sub("\n", _HIDDEN_HTML.sub("", text))))
    return text.replace("\xa0", " ").rstrip().lstrip("\n")


def without_instructions(text: str) -> str:
    """`text` less what speaks to the machine: from the sentence that does so to the end of its paragraph."""
    return "\n\n".join(filter(None, map(_customer_part, re.split(r"\n[ \t]*\n", text))))


def _customer_part(paragraph: str) -> str:
    found = _INSTRUCTION.search(paragraph)
    if not found:
        return paragraph
    before = paragraph[: found.start()]
    return before[: max(before.rfind(end) for end in (". ", "! ", "? ", "\n")) + 1].rstrip()


def _readable(text: str) -> str:
    return without_instructions(visible_text(text))


def _newest_mail(readable: str) -> str:
    """The beginning of a thread's newest mail; the older ones were answered before."""
    return _OLDER_MAIL.split(readable, maxsplit=1)[0][:20_000]


def _header(readable: str, names: str) -> str:
    found = re.search(rf"^(?:{names}) ?[:\uff1a][ \t]*(.*)$", readable[:2000], re.MULTILINE)
    return found[1].strip() if found else ""


def _without_header(readable: str, names: str) -> str:
    return re.sub(rf"^(?:{names}) ?[:\uff1a].*$", "", readable, flags=re.MULTILINE)


def _prose(readable: str) -> str:
    """The newest mail's own sentences: no header lines, nothing pasted or quoted."""
    lines = _newest_mail(readable).split("\n")
    return "\n".join("" if _PASTED.match(line) or _HEADER.match(line) else line for line in lines)


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。\uff01\uff1f])|\n\s*\n|\n(?=[-*\u2022\u30fb] ?)")


def _sentences(prose: str) -> list[str]:
    return [
        sentence for part in _SENTENCE_END.split(prose) if (sentence := " ".join(part.split()).lstrip("-* "))
    ]


# --- classifying ------------------------------------------------------------------------------------------


def _keywords(phrases: str) -> re.Pattern[str]:
    """Matches any of some comma-separated phrases, as whole words.

    `*` stands for any end of a word, `#` for a number. Japanese, which has no spaces, matches anywhere.
    """
    alternatives: list[str] = []
    for phrase in (" ".join(part.split()) for part in phrases.split(",")):
        pattern = re.escape(phrase).replace(r"\*", r"\w*").replace(r"\#", r"\d+")
        alternatives.append(pattern if re.search(r"[\u3040-\u9fff]", phrase) else rf"\b{pattern}\b")
    return re.compile("|".join(alternatives), re.IGNORECASE)


_KEYWORDS: dict[Category, tuple[re.Pattern[str], re.Pattern[str]]] = {
    # the first ones give three points each, the others one
    "billing": (
        _keywords("""
            invoice, invoices, billing, charged twice, double charge, duplicate charge, second payment,
            overcharged, still charging, reverse charge, VAT, Rechnung*, abgebucht, Abbuchung*,
            factur*, cobrado, cobraron, 請求
        """),
        _keywords("""
            charge, charged, payment, payments, card, statement, price, prices, pay, accountant,
            prélev*, montant, 支払
        """),
    ),
    "technical": (
        _keywords("""
            error, errors, crash*, firmware, offline, traceback, exception, reboot*, bug, fault,
            unreachable, dropout*, does not work, doesn't work, not working, drop out,
            connection drops, E-#, HUB-#, PM-#, Fehler*, defekt, verbindet sich nicht, no funciona,
            en panne, erreur, エラー, 故障, 不具合
        """),
        _keywords("""
            sensor, sensors, app, updat*, restart*, connection, API, log, logs, noise, recalibrat*,
            licence key, Verbindung, neu gestartet, 接続
        """),
    ),
    "shipping": (
        _keywords("""
            parcel*, tracking, deliver*, shipped, shipping, ships, courier, carrier, dispatch*,
            where is my, wrong thing, Lieferung, Paket*, paquete, colis, livraison, 届, 配送, 発送,
            荷物
        """),
        _keywords("address, arriv*, packed, warehouse, label, box, seguimiento, Versand, 注文"),
    ),
    "refund": (
        _keywords("""
            refund*, money back, return it, return of, return policy, return the, return window,
            store credit, every cent back, Erstattung, Rückerstattung, Geld zurück, reembols*,
            devolución, devolver, rembours*, 返金, 返品
        """),
        _keywords("return, returned, returns, receipt"),
    ),
    "account": (
        _keywords("""
            log in, login, password*, locked, two-factor, 2FA, authenticator, sign in, anmelden,
            Anmeldung, Passwort, Kennwort, contraseña, mot de passe, ログイン, パスワード
        """),
        _keywords("account, accounts, recovery, reset, suspicious, Benutzerkonto, cuenta"),
    ),
    "cancellation": (
        _keywords(
            "cancel*, unsubscribe, do not renew, downgrade, kündig*, résili*, darme de baja, 解約, 退会"
        ),
        _keywords("renew*, current term, subscription*, Abonnement, abonnement, suscripción"),
    ),
    "feature_request": (
        _keywords("""
            feature, suggest*, wish list, roadmap, would be great, would be nice, would love,
            would be lovely, i'd love, please add, idea, ideas, widget, dark mode, Vorschlag,
            sugerencia, 要望, 機能追加
        """),
        _keywords("export, beta, nicknames, wish"),
    ),
    "feedback": (
        _keywords("""
            compliment, excellent, wonderful, have recommended, keep up, praise, Kompliment, großartig,
            felicit*, félicit*, 感謝の
        """),
        _keywords("love, thank you for, great, patience"),
    ),
    "privacy": (
        _keywords("""
            GDPR, general data protection, art. #, personal data, erasure, subpoena, legal notice,
            attorney, litigation, preserve, preservation, DSGVO, Datenschutz*, RGPD,
            données personnelles, 個人情報
        """),
        _keywords("privacy, legal, law, retention, identity, data protection"),
    ),
    "sales": (
        _keywords("""
            quote, volume discount, purchase order, purchase orders, price list, procurement, bulk,
            reseller, Angebot, presupuesto, devis, 見積
        """),
        _keywords("sales, discount, offer, offers, demo, unit price, contract, like to buy"),
    ),
}

_STOP_WORDS = {
    "en": "the and you your is to of for with this have not that my it on be are was but",
    "de": "der die das und ich nicht ist mit auf ein eine den für sie bei von zu mir habe",
    "es": "el los las que y en por para con una mi se me del al pero muy lo su de la",
    "fr": "le les des et je vous est pour une dans pas votre que du au ne ce sur de la",
}

_HIGH = _keywords("""
    urgent, urgently, ASAP, immediate*, emergency, unacceptable, chargeback, furious,
    dringend, sofort, umgehend, urgente, inmediat*, en urgence, 至急, 緊急
""")
_LOW = _keywords("""
    no hurry, no rush, not urgent, no reply needed, keine Eile, eilt nicht, sin prisa, pas urgent,
    急ぎません
""")
_POSITIVE = _keywords("""
    love, wonderful, excellent, great, happy, lovely, fun to, impressive, recommended, patience,
    perfectly, compliment, contento, contenta, zufrieden, très bien, 素晴らし, 嬉し
""")
_NEGATIVE = _keywords("""
    unacceptable, furious, worst, ashamed, disappoint*, terrible, chargeback, dispute, third time,
    third email, not a threat, angry, ridiculous, inakzeptabel, unverschämt, enttäuscht, inaceptable,
    indignad*, scandaleux, 最悪, ひどい
""")
_SHOUTED = re.compile(r"\b[A-Z]{4,}\b")


def classify(text: str) -> Classification:
    """The category with most keywords, and urgency, language, sentiment by the same simple means."""
    readable = _readable(text)
    points = _category_points(readable)
    category, best, second = _best(points)
    prose = _prose(readable)
    sentiment = _sentiment(prose)
    return {
        "category": category,
        "urgency": _urgency(prose + "\n" + _subject(readable), category, sentiment),
        "language": detect_language(prose or readable),
        "sentiment": sentiment,
        "confidence": round((best - second) / (best + 4), 2),
    }


def detect_language(text: str) -> str:
    """ISO 639 code of English, German, Spanish, French or Japanese; `und` if no word tells.

    Japanese by its syllabic characters, the others by their most frequent words.
    """
    text = text[:5000]
    if len(re.findall(r"[\u3040-\u30ff]", text)) > len(text) / 20:
        return "ja"
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = {
        language: sum(word in stops for word in words)
        for language, stops in ((code, set(line.split())) for code, line in _STOP_WORDS.items())
    }
    language = max(counts, key=lambda code: counts[code])
    return language if counts[language] else "und"


def _subject(readable: str) -> str:
    return _header(readable, _SUBJECT)


def _category_points(readable: str) -> dict[Category, int]:
    newest, subject = _newest_mail(readable), _subject(readable)
    return {
        category: _points(newest, strong, weak) + 2 * _points(subject, strong, weak)
        for category, (strong, weak) in _KEYWORDS.items()
    }


def _points(text: str, strong: re.Pattern[str], weak: re.Pattern[str]) -> int:
    """Points of the different keywords: one that is repeated, as in a pasted log, counts twice at most."""
    return sum(
        weight * min(2, count)
        for pattern, weight in ((strong, 3), (weak, 1))
        for count in Counter(match.lower() for match in pattern.findall(text)).values()
    )


def _best(points: Mapping[Category, int]) -> tuple[Category, int, int]:
    """The category with most points, its points, and those of the second."""
    ranked = sorted(points, key=lambda category: -points[category])
    best, second = points[ranked[0]], points[ranked[1]]
    return (ranked[0] if best else "other"), best, second


def _urgency(text: str, category: Category, sentiment: Sentiment) -> Urgency:
    if _HIGH.search(_LOW.sub("", text)):
        return "high"
    if _LOW.search(text):
        return "low"
    if category in ("feature_request", "feedback") and sentiment != "negative":
        return "low"
    return "normal"


def _sentiment(prose: str) -> Sentiment:
    shouting = 2 if len(_SHOUTED.findall(prose)) >= 3 else 0
    balance = len(_POSITIVE.findall(prose)) - len(_NEGATIVE.findall(prose)) - shouting
    return "positive" if balance >= 2 else "negative" if balance <= -2 else "neutral"


# --- extracting -------------------------------------------------------------------------------------------

_MONTH = (
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|März|Mai|Okt|Dez)[a-zä]*\.?"
    r"|(?:ene|feb|mar|abr|may|jun|jul|ago|sep|oct|nov|dic)[a-z]*"
    r"|(?:janv|févr|mars|avr|mai|juin|juil|août|sept|oct|nov|déc)[a-zé]*"
)
_DATE = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}(?:st|nd|rd|th)?\.? (?:de )?(?:{_MONTH})\b(?:,? (?:de )?\d{{4}})?"
    rf"|\b(?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:, \d{{4}})?|(?:\d{{4}}年)?\d{{1,2}}月\d{{1,2}}日"
)
_AMOUNT = re.compile(
    r"[$€£] ?\d[\d.,]{0,15}|\b(?:EUR|USD|GBP) \d[\d.,]{0,15}"
    r"|\b\d[\d.,]{0,15} ?(?:€|£|EUR\b|USD\b|GBP\b|円|euros?\b|dollars?\b|quid\b)"
)
_ORDER = re.compile(r"\bORD-\d{4,}\b", re.IGNORECASE)
_INVOICE = re.compile(r"\bINV-\d[\d-]*\d\b", re.IGNORECASE)
_ERROR_CODE = re.compile(r"\b(?:E|ERR|HUB|PM)-\d{3,5}\b|\b0x[0-9A-F]{8}\b")
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_PRODUCTS = {
    name: re.compile(rf"\b(?:{pattern})(?![-\w])", re.IGNORECASE)
    for name, pattern in {
        "Hub 3": "Hub ?3",
        "Hub 2": "Hub ?2",
        "Sense T1": "T1",
        "Sense S4": "S4",
        "Leak Guard": "Leak ?Guards?",
        "Field Kit": "Field Kit",
        "Cloud Plus": "Cloud Plus",
        "Cloud Pro": "Cloud Pro",
    }.items()
}
_CLOSING = re.compile(
    r"(?:.*\b(?:regards|wishes)|(?:yours |very truly )*(?:sincerely|faithfully|truly|yours)|best|cheers"
    r"|ta|thanks(?: a lot| for listening)?|thank you(?: so much| kindly)?|.*freundlichen grüßen|viele grüße"
    r"|.*un saludo|.*cordialement|.*salutations distinguées|.*よろしくお願いいたします) ?[,.!。]?",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\W\d_][\w'\u2019.-]*(?: [^\W\d_][\w'\u2019.-]*){0,3}")
_NOT_A_PERSON = re.compile(
    r"\b(?:Ltd|LLP|Inc|GmbH|AS|accounts?|support|team|sales|procurement|purchasing|payable|no-?reply)\b",
    re.IGNORECASE,
)
_MOST = 10  # of a kind: a pasted log has hundreds


def extract(text: str, order_lookup_result: object = None) -> Facts:
    """What the ticket says, and what the order system says about its first order.

    `order_lookup_result` is what the tool returned, a mapping with a `status`, or its JSON.
    """
    readable = _readable(text)
    sender = _header(readable, _FROM)
    return {
        "customer_name": _customer_name(readable, sender),
        "email": _customer_email(readable, sender),
        "order_ids": _all(_ORDER, readable.upper()),
        "invoice_ids": _all(_INVOICE, readable.upper()),
        "amounts": [amount.rstrip(".,") for amount in _all(_AMOUNT, readable)],
        "dates": _all(_DATE, _without_header(readable, _DATED)),
        "product": _product(readable),
        "error_codes": _all(_ERROR_CODE, readable),
        "order_status": _order_status(order_lookup_result),
        "summary": _summary(readable),
    }


def _all(pattern: re.Pattern[str], text: str) -> list[str]:
    """The different matches in the order of the text."""
    return list(dict.fromkeys(match[0] for match in pattern.finditer(text)))[:_MOST]


def _customer_name(readable: str, sender: str) -> str | None:
    name = sender.split("<")[0].strip(' "')
    if _NAME.fullmatch(name) and not _NOT_A_PERSON.search(name) and "@" not in name:
        return name
    lines = [line.strip() for line in _newest_mail(readable).split("\n") if line.strip()]
    for closing, signature in pairwise(lines):
        if _CLOSING.fullmatch(closing) and _NAME.fullmatch(signature):
            return signature
    return None


def _customer_email(readable: str, sender: str) -> str | None:
    found = _EMAIL.search(sender) or _EMAIL.search(_without_header(readable, _TO))
    return found[0] if found else None


def _product(readable: str) -> str | None:
    """The product that is named most often in the newest mail."""
    newest = _newest_mail(readable)
    mentions = {name: len(pattern.findall(newest)) for name, pattern in _PRODUCTS.items()}
    product = max(mentions, key=lambda name: mentions[name])
    return product if mentions[product] else None


def _order_status(result: object) -> str | None:
    if isinstance(result, str):
        try:
            result = json.loads(result)
        except ValueError:
            return None  # a tool that failed explains itself in prose: no status to quote to a customer
    status = cast("Mapping[str, object]", result).get("status") if isinstance(result, Mapping) else None
    return status if isinstance(status, str) else None


def _summary(readable: str) -> str:
    """The sentence that says most: by keywords of the category and by ids, rather an early one."""
    category, _, _ = _best(_category_points(readable))

    def weight(numbered: tuple[int, str]) -> float:
        position, sentence = numbered
        keywords = 0 if category == "other" else _points(sentence, *_KEYWORDS[category])
        ids = sum(2 for pattern in (_ORDER, _ERROR_CODE, _AMOUNT) if pattern.search(sentence))
        return keywords + ids - position / 20

    whole = [
        (position, sentence)
        for position, sentence in enumerate(_sentences(_prose(readable))[:60])
        if 12 <= len(sentence) <= 400 and not sentence.endswith((",", ":", "、"))
    ]
    _, best = max(whole, key=weight, default=(0, ""))
    return best if len(best) <= 240 else best[:239].rsplit(" ", 1)[0] + "…"


# --- writing, reviewing, revising -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Phrases:
    """The sentences of one language."""

    greeting: str
    greeting_without_name: str
    thanks: str
    apology: str
    reference: str
    about: str
    status: str
    urgent: str
    promise: str
    ask_for_order: str
    more: str
    no_text: str
    closing: str
    answers: dict[Category, str]


_PHRASES = {
    "en": _Phrases(
        greeting="Dear {name},",
        greeting_without_name="Hello,",
        thanks="Thank you for writing to us.",
        apology="We are sorry for the trouble, and that you had to write to us about it.",
        reference="Your message is filed under {references}.",
        about="It concerns: {topics}.",
        status="Our order system shows the order as: {status}.",
        urgent="We have marked your message as urgent, and somebody is looking at it today.",
        promise="We will refund {amount} by your original means of payment as soon as the case is checked.",
        ask_for_order="Before we can promise a payment we need the number of your order or invoice.",
        more="If you have more to tell us about it, simply answer this message.",
        no_text="Your message reached us without any text. Please tell us again what we can do for you.",
        closing="Kind regards,\nPinemoor Support",
        answers={
            "billing": "Our billing team compares the payments with your invoices and corrects mistakes.",
            "technical": "Our technicians look into what you describe. Please leave the device as it is.",
            "shipping": "We are asking the carrier where your parcel is, and replace it if it is lost.",
            "refund": "We are checking whether your return was booked in and what is still open.",
            "account": "To protect your account we check first that it is you. Never send us a password.",
            "cancellation": "We have noted that you think of ending your plan, and will confirm the date.",
            "feature_request": "Your idea is on the list that our product team reads every month.",
            "feedback": "Your words are on their way to the people who built it and those who helped you.",
            "privacy": "Our data protection officer answers your request in writing, as the law asks.",
            "sales": "Our sales team prepares an offer with your quantities, and calls you about it.",
            "other": "A colleague reads your message and answers each of your questions.",
        },
    ),
    "de": _Phrases(
        greeting="Guten Tag {name},",
        greeting_without_name="Guten Tag,",
        thanks="vielen Dank für Ihre Nachricht.",
        apology="es tut uns leid, dass Sie Ärger hatten und uns deswegen schreiben mussten.",
        reference="Wir führen Ihr Anliegen unter {references}.",
        about="Es geht um: {topics}.",
        status="Unser Bestellsystem zeigt dazu den Stand: {status}.",
        urgent="Wir haben Ihre Nachricht als dringend eingestuft und kümmern uns heute darum.",
        promise="Wir erstatten {amount} auf demselben Zahlungsweg, sobald der Fall geprüft ist.",
        ask_for_order="Bevor wir eine Zahlung zusagen, brauchen wir die Nummer der Bestellung oder Rechnung.",
        more="Wenn Sie uns noch mehr dazu sagen möchten, antworten Sie einfach auf diese Nachricht.",
        no_text="Ihre Nachricht kam ohne Text an. Bitte schreiben Sie uns noch einmal, was wir tun können.",
        closing="Mit freundlichen Grüßen\nIhr Pinemoor Support",
        answers={
            "billing": "Unsere Buchhaltung vergleicht Zahlungen und Rechnungen und berichtigt Fehler.",
            "technical": "Unsere Technik prüft, was Sie schreiben. Setzen Sie das Gerät bitte nicht zurück.",
            "shipping": "Wir fragen beim Paketdienst nach und ersetzen, was verloren gegangen ist.",
            "refund": "Wir prüfen, ob Ihre Rücksendung gebucht ist und was noch offen ist.",
            "account": "Zum Schutz Ihres Kontos prüfen wir zuerst, ob die Anfrage von Ihnen kommt.",
            "cancellation": "Wir haben Ihren Kündigungswunsch notiert und bestätigen ihn mit dem Datum.",
            "feature_request": "Ihr Vorschlag steht auf der Liste, die wir jeden Monat durchsehen.",
            "feedback": "Ihre Worte geben wir gern an die Kolleginnen und Kollegen weiter.",
            "privacy": "Unser Datenschutz beantwortet Ihre Anfrage schriftlich in der gesetzlichen Frist.",
            "sales": "Unser Vertrieb erstellt ein Angebot mit den genannten Mengen und ruft Sie dazu an.",
            "other": "Eine Kollegin liest Ihre Nachricht und beantwortet jede Ihrer Fragen.",
        },
    ),
    "es": _Phrases(
        greeting="Estimado/a {name}:",
        greeting_without_name="Buenos días:",
        thanks="Gracias por escribirnos.",
        apology="Lamentamos las molestias y que haya tenido que escribirnos por ello.",
        reference="Su mensaje está registrado con la referencia {references}.",
        about="Se trata de: {topics}.",
        status="Nuestro sistema muestra el pedido como: {status}.",
        urgent="Hemos marcado su mensaje como urgente y lo estamos mirando hoy.",
        promise="Le reembolsaremos {amount} por el mismo medio de pago en cuanto se compruebe el caso.",
        ask_for_order="Antes de prometer un pago necesitamos el número de su pedido o de su factura.",
        more="Si quiere contarnos algo más, responda sencillamente a este mensaje.",
        no_text="Su mensaje nos ha llegado sin texto. Por favor, escríbanos de nuevo qué necesita.",
        closing="Un cordial saludo,\nAtención al cliente de Pinemoor",
        answers={
            "billing": "Nuestro equipo compara los cobros con sus facturas y corrige lo que no cuadre.",
            "technical": "Nuestros técnicos revisan lo que describe. No restablezca el aparato por ahora.",
            "shipping": "Preguntamos al transportista por su paquete y, si se ha perdido, enviamos otro.",
            "refund": "Estamos comprobando si su devolución está registrada y qué queda pendiente.",
            "account": "Para proteger su cuenta comprobamos primero que es usted quien escribe.",
            "cancellation": "Hemos anotado que desea darse de baja y se lo confirmaremos con la fecha.",
            "feature_request": "Hemos añadido su idea a la lista que nuestro equipo lee cada mes.",
            "feedback": "Sus palabras van de camino a las personas que lo hicieron posible.",
            "privacy": "Nuestro delegado de protección de datos le responderá por escrito en el plazo legal.",
            "sales": "Nuestro equipo comercial prepara un presupuesto con las cantidades que indica.",
            "other": "Una persona de nuestro equipo lee su mensaje y responde a sus preguntas.",
        },
    ),
    "fr": _Phrases(
        greeting="Bonjour {name},",
        greeting_without_name="Bonjour,",
        thanks="Merci de nous avoir écrit.",
        apology="Nous sommes désolés de ce désagrément et que vous ayez dû nous écrire.",
        reference="Votre message est enregistré sous la référence {references}.",
        about="Il concerne : {topics}.",
        status="Notre système indique pour la commande : {status}.",
        urgent="Nous avons classé votre message comme urgent et nous nous en occupons aujourd'hui.",
        promise="Nous vous rembourserons {amount} par le même moyen de paiement, une fois le cas vérifié.",
        ask_for_order="Avant de promettre un paiement, il nous faut le numéro de commande ou de facture.",
        more="Si vous souhaitez ajouter quelque chose, répondez simplement à ce message.",
        no_text="Votre message nous est parvenu sans texte. Merci de nous écrire à nouveau.",
        closing="Bien cordialement,\nLe service client de Pinemoor",
        answers={
            "billing": "Notre service compare les paiements avec vos factures et corrige ce qui ne va pas.",
            "technical": "Nos techniciens étudient ce que vous décrivez. Ne réinitialisez pas l'appareil.",
            "shipping": "Nous demandons au transporteur où est votre colis et le remplaçons s'il est perdu.",
            "refund": "Nous vérifions si votre retour est enregistré et ce qui reste ouvert.",
            "account": "Pour protéger votre compte, nous vérifions d'abord que la demande vient de vous.",
            "cancellation": "Nous avons noté votre demande de résiliation et la confirmerons avec la date.",
            "feature_request": "Votre idée figure sur la liste que notre équipe produit relit chaque mois.",
            "feedback": "Vos mots sont en route vers les personnes concernées.",
            "privacy": "Notre délégué à la protection des données répondra dans le délai légal.",
            "sales": "Notre équipe commerciale prépare un devis avec les quantités indiquées.",
            "other": "Une personne de notre équipe lit votre message et répond à vos questions.",
        },
    ),
    "ja": _Phrases(
        greeting="{name} 様",
        greeting_without_name="お客様",
        thanks="お問い合わせいただき、ありがとうございます。",
        apology="このたびはご不便をおかけし、誠に申し訳ございません。",
        reference="お問い合わせは {references} として承りました。",
        about="内容は {topics} に関するものです。",
        status="弊社のシステムでは、ご注文の状況は「{status}」となっております。",
        urgent="至急の件として、本日中に担当者が確認いたします。",
        promise="確認ができ次第、{amount} を元のお支払い方法へ返金いたします。",
        ask_for_order="お支払いをお約束する前に、ご注文番号または請求書番号をお知らせください。",
        more="ほかにお気づきの点がございましたら、このメールにご返信ください。",
        no_text="メッセージに本文がありませんでした。お手数ですが、ご用件をもう一度お知らせください。",
        closing="どうぞよろしくお願いいたします。\nPinemoor サポート",
        answers={
            "billing": "担当部署がお支払いと請求書を照合し、誤りがあれば訂正いたします。",
            "technical": "技術担当者が内容を確認いたします。機器は初期化しないでください。",
            "shipping": "荷物の所在を配送会社に確認し、紛失の場合は代わりの品をお送りいたします。",
            "refund": "返品の手続きの状況を確認しております。",
            "account": "アカウントを保護するため、まずご本人様の確認をいたします。",
            "cancellation": "解約のご希望を承りました。終了日を添えて確認のご連絡をいたします。",
            "feature_request": "ご要望は、開発チームが毎月確認する一覧に加えました。",
            "feedback": "いただいたお言葉は担当者に伝えます。",
            "privacy": "個人情報保護の担当者が、法律の定める期間内に書面でお答えいたします。",
            "sales": "営業担当者がご希望の数量でお見積もりを作成いたします。",
            "other": "担当者が内容を読み、ご質問に一つずつお答えいたします。",
        },
    ),
}

_LONG_TICKET = 4_000
"""Characters."""
_SHORTEST_REPLY = 100
"""Characters, a Japanese one counted as three."""

_NO_GREETING = "no greeting"
_TOO_SHORT = "too short"
_MISSING = "missing reference "
_PROMISE_WITHOUT_ORDER = "promises money without an order or invoice"

_GREETING = re.compile(r"Dear |Hello|Guten Tag|Estimad|Buenos|Bonjour|.*(?:様|お客様)$", re.MULTILINE)
_PROMISE = re.compile(
    r"\bwe (?:will|have|'ll) (?:refund|credit|pay)|\bwir erstatten|\ble reembolsar|\bnous vous rembourser"
    r"|返金いたします",
    re.IGNORECASE,
)


def write_reply(text: str, classification: Classification, facts: Facts) -> str:
    """A reply in the customer's language, from our own sentences and the facts: no sentence of the ticket.

    The draft for an angry or very long ticket leaves out the references, as somebody would who is busy
    with apologising or tired from reading; and it promises a refund whether or not there is an order.
    `review` finds both.
    """
    phrases = _phrases(classification["language"])
    paragraphs = [_greeting(phrases, facts)]
    if not visible_text(text):
        return "\n\n".join([*paragraphs, phrases.no_text, phrases.closing])
    angry = classification["sentiment"] == "negative"
    opening = [phrases.apology if angry else phrases.thanks]
    if not angry and len(text) <= _LONG_TICKET:
        opening += _reference(phrases, facts)
    paragraphs.append(_join(opening, phrases))
    paragraphs.append(_join(_answer(phrases, classification, facts), phrases))
    return "\n\n".join([*paragraphs, phrases.more, phrases.closing])


def _answer(phrases: _Phrases, classification: Classification, facts: Facts) -> list[str]:
    category = classification["category"]
    topics = [topic for topic in (facts["product"], *facts["error_codes"][:3]) if topic]
    answer = [phrases.about.format(topics=", ".join(topics))] if topics else []
    answer.append(phrases.answers[category])
    if category == "refund" and facts["amounts"]:
        answer.append(phrases.promise.format(amount=facts["amounts"][0]))
    if facts["order_status"]:
        answer.append(phrases.status.format(status=facts["order_status"]))
    if classification["urgency"] == "high":
        answer.append(phrases.urgent)
    return answer


def review(reply: str, facts: Facts) -> Review:
    """What a reply lacks: a greeting, substance, the customer's reference, or grounds for promising money."""
    references = _references(facts)
    issues = [f"{_MISSING}{reference}" for reference in references if reference not in reply]
    if not _GREETING.match(reply.strip()):
        issues.append(_NO_GREETING)
    if _length(reply) < _SHORTEST_REPLY:
        issues.append(_TOO_SHORT)
    if not references and _PROMISE.search(reply):
        issues.append(_PROMISE_WITHOUT_ORDER)
    return {"approved": not issues, "issues": issues}


def revise(reply: str, issues: Sequence[str], facts: Facts) -> str:
    """`reply` with what `review` found put right; issues that are none of `review`'s change nothing."""
    phrases = _phrases(detect_language(reply))
    paragraphs = reply.strip().split("\n\n")
    closing = [paragraphs.pop()] if paragraphs[-1] == phrases.closing else []
    if _NO_GREETING in issues:
        paragraphs.insert(0, _greeting(phrases, facts))
    if any(issue.startswith(_MISSING) for issue in issues):
        paragraphs[2:2] = _reference(phrases, facts)
    if _PROMISE_WITHOUT_ORDER in issues:
        paragraphs = [kept for paragraph in paragraphs if (kept := _without_promises(paragraph))]
        paragraphs.insert(-1, phrases.ask_for_order)
    if _TOO_SHORT in issues:
        paragraphs += [phrases.answers["other"], phrases.more]
    return "\n\n".join(paragraphs + closing)


def _phrases(language: str) -> _Phrases:
    return _PHRASES.get(language, _PHRASES["en"])


def _greeting(phrases: _Phrases, facts: Facts) -> str:
    name = facts["customer_name"]
    return phrases.greeting.format(name=name) if name else phrases.greeting_without_name


def _references(facts: Facts) -> list[str]:
    """What a reply must name: the orders; without any, the invoices."""
    return (facts["order_ids"] or facts["invoice_ids"])[:3]


def _reference(phrases: _Phrases, facts: Facts) -> list[str]:
    references = _references(facts)
    return [phrases.reference.format(references=", ".join(references))] if references else []


def _join(sentences: Sequence[str], phrases: _Phrases) -> str:
    return ("" if phrases is _PHRASES["ja"] else " ").join(sentences)


def _without_promises(paragraph: str) -> str:
    if not _PROMISE.search(paragraph):
        return paragraph
    kept = [sentence for sentence in _sentences(paragraph) if not _PROMISE.search(sentence)]
    return _join(kept, _phrases(detect_language(paragraph)))


def _length(text: str) -> int:
    """Characters, a Japanese one as three: it says about as much."""
    return len(text) + 2 * len(re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]", text))


# --- serving ----------------------------------------------------------------------------------------------


def install(server: "ModelServer") -> None:
    """Let `server` answer the agents of this demo, which say who they are: `Role: classifier` and so on."""
    for role, answer in _ROLES.items():
        server.rule(partial(_asks_for, role), answer)


def _asks_for(role: str, request: "ServedRequest") -> bool:
    # from the system text only: a ticket may claim any role
    return re.search(rf"^Role: {role}\s*$", request.system, re.MULTILINE) is not None


def _classifier(request: "ServedRequest") -> Reply:
    return Reply(data=classify(_ticket(request)))


def _extractor(request: "ServedRequest") -> Reply:
    ticket = _ticket(request)
    found = [result.text for result in request.tool_results if result.name == "look_up_order"]
    facts = extract(ticket, found[-1] if found else None)
    offered = any(tool.name == "look_up_order" for tool in request.tools)
    if facts["order_ids"] and offered and not found:
        return Reply(tool_calls=[ToolCall("look_up_order", {"order_id": facts["order_ids"][0]})])
    return Reply(data=facts)


def _writer(request: "ServedRequest") -> Reply:
    ticket = _ticket(request)
    given = _mapping(_block(request, "classification"))
    classification = cast(Classification, {**classify(ticket), **given})
    return Reply(write_reply(ticket, classification, _facts(request)))


def _reviewer(request: "ServedRequest") -> Reply:
    return Reply(data=review(_block(request, "reply"), _facts(request)))


def _reviser(request: "ServedRequest") -> Reply:
    return Reply(revise(_block(request, "reply"), _issues(_block(request, "issues")), _facts(request)))


_ROLES = {
    "classifier": _classifier,
    "extractor": _extractor,
    "writer": _writer,
    "reviewer": _reviewer,
    "reviser": _reviser,
}

_TICKET = re.compile(r"^<ticket>[ \t]*\n?(.*)</ticket>", re.DOTALL | re.MULTILINE)
"""To the last end mark: a ticket that contains one of its own does not get out by it."""


def _prompt(request: "ServedRequest") -> str:
    return "\n".join(message.text for message in request.messages if message.role == "user")


def _ticket(request: "ServedRequest") -> str:
    found = _TICKET.search(_prompt(request))
    return found[1] if found else ""


def _block(request: "ServedRequest", tag: str) -> str:
    """What stands between `<tag>` and `</tag>` outside of the ticket."""
    found = re.search(rf"<{tag}>(.*)</{tag}>", _TICKET.sub("", _prompt(request)), re.DOTALL)
    return found[1].strip() if found else ""


def _facts(request: "ServedRequest") -> Facts:
    return cast(Facts, {**extract(_ticket(request)), **_mapping(_block(request, "facts"))})


def _mapping(block: str) -> dict[str, object]:
    value: object = json.loads(block) if block else {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _issues(block: str) -> list[str]:
    """The issues of a JSON list, or one to a line."""
    if block.startswith("["):
        return [str(issue) for issue in json.loads(block)]
    return [line.strip(" -*") for line in block.splitlines() if line.strip()]
