"""Letters that are frequent in the languages of each character set, by which one is told from another.

A text that is read in the wrong character set consists of rare characters, so a few hundred frequent
ones of each language are enough to guess. Rough lists, from common texts; their order has no meaning."""

from __future__ import annotations

from typing import Final

SIMPLIFIED: Final = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事"
    "成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想实日军者意无力它与长把机十民第公此"
    "已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特"
    "代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电"
    "数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却"
    "界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运"
    "测试容请谢您价客户订单司称号编码文件密姓址邮箱元额日期商店备注"
)
TRADITIONAL: Final = frozenset(
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作里用道行所然家種事"
    "成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心本前開但因只從想實日軍者意無力它與長把機十民第公此"
    "已工使情明性知全三又關點正業外將兩高間由問很最重並物手應戰向頭文體政美相見被利什二等產或新己制身果加西斯月話合回特"
    "代內信表化老給世位次度門任常先海通教兒原東聲提立及比員解水名真論處走義各入幾口認條平系氣題活爾更別打女變四神總何電"
    "數安少報才結反受目太量再感建務做接必場件計管期市直德資命山金指克許統區保至隊形社便空決治展馬科司五基眼書非則聽白卻"
    "界達光放強即像難且權思王象完設式色路記南品住告類求據程北邊死張該交規萬取拉格望覺術領共確傳師觀清今切院讓識候帶導爭運"
    "測試容請謝您價客戶訂單稱號編碼檔案密姓址郵箱元額期商店備註繁灣臺"
)
HANGUL: Final = frozenset(
    "이다는을가의에고하한지사를기로은도리어자서대인나그아해라일시전정있수것보제스부여주과상들관장원연만동구공우게할마안적조국"
    "소성생회세신면경교유오치무문물개당방미중화음때실선했거분으와비말바위내부행발통업결용같간계민년월출모반니습요안녕테트글험"
    "건호명권재배열식품금액격번님감히더까저약학결역도청단예체심파건복없았었네데려입됩합니까세요"
)
KANJI: Final = frozenset(
    "日本人大年一国会中出事時者社上業見生分間地学自下月東行方手前今合同部長高場内定後話回開力問目化表名小作物新体動理明"
    "心金通全公主電気入立書数当代対意取外水度品実世気京都文字用員発語安価格商号様試験漢社"
)
KANA: Final = frozenset(map(chr, [*range(0x3041, 0x3094), *range(0x30A1, 0x30F7), 0x30FC]))

RUSSIAN: Final = frozenset("оеаинтсрвлкмдпу")
UKRAINIAN: Final = frozenset("оанитівреслкдмупязьїєґ")
GREEK: Final = frozenset("αοιετσνηυρπκμλςάέήίόύώ")
HEBREW: Final = frozenset("יוהלאתשרבםמנדחע")
ARABIC: Final = frozenset("اليمونتربةعدسفهكقحجأ")
THAI: Final = frozenset("านรอกเงมยลวดทสตะปบคหแจพชขใไโ่้ัิีุู์็ำ")

GERMAN: Final = frozenset("äöüß")
FRENCH: Final = frozenset("éèàçêîôûëïâœù")
SPANISH: Final = frozenset("áéíóúñü")
PORTUGUESE: Final = frozenset("ãçáéíóúâêôõà")
ITALIAN: Final = frozenset("àèéìòù")
NORDIC: Final = frozenset("åäöøæé")
ICELANDIC: Final = frozenset("áéíóúýþæöð")
POLISH: Final = frozenset("ąćęłńóśźż")
CZECH: Final = frozenset("áčďéěíňóřšťúůýž")
SLOVAK: Final = frozenset("áäčďéíĺľňóôŕšťúýž")
CROATIAN: Final = frozenset("čćđšž")
HUNGARIAN: Final = frozenset("áéíóöőúüű")
ROMANIAN: Final = frozenset("ăâîşţ")
TURKISH: Final = frozenset("çğıöşüİ")
LITHUANIAN: Final = frozenset("ąčęėįšųūž")
LATVIAN: Final = frozenset("āčēģīķļņšūž")
ESTONIAN: Final = frozenset("äõöüšž")

WESTERN: Final = (GERMAN, FRENCH, SPANISH, PORTUGUESE, ITALIAN, NORDIC, ICELANDIC)
CYRILLIC: Final = (RUSSIAN, UKRAINIAN)
CENTRAL: Final = (POLISH, CZECH, SLOVAK, CROATIAN, HUNGARIAN, ROMANIAN)
BALTIC: Final = (LITHUANIAN, LATVIAN, ESTONIAN)
