"""The ten question types of VSI-Bench, in its wording: other benchmarks and the procedural rooms ask them too."""

from roomscout.data.answers import LETTER_KIND, Number
from roomscout.data.benchmark import QuestionType

_FROM = r"(measuring from the closest point of each object, )?"
_TASK = "object_rel_direction"
_FACING = r"if i am standing by .+ and facing .+, is .+ to "
_RULER = "The camera's position is given in metres: use it to judge scale."
_NEARBY = "Look at both objects, from nearby if you can."
_ALL_SIDES = "Look at the whole object, from more than one side if you can."
_BOTH = "Look at both objects."
_WHOLE = "Look at the whole object."
_WALLS = "Find the walls in every direction."
_SHOWN_WALLS = "Note where the walls are."
_RECTANGLE = "The room may not fill the rectangle of its extent."
_ONCE = "Do not count an object again when it appears in another view."
_DIRECTION = (
    "Find every object that the question names and note where it is on the floor plan. Then imagine standing at the "
    "first object, facing the second. The camera's own heading does not matter."
)

VSI_TYPES = (
    QuestionType(
        "object_counting",
        Number("objects"),
        advice=f"Look in every direction before you answer. {_ONCE}",
        advice_untold={"moves": _ONCE},
        wording=r"how many .+ (are|is)( there)? in (this|the) room\W*$",
    ),
    QuestionType(
        "object_abs_distance",
        Number("m"),
        advice=f"{_NEARBY} {_RULER}",
        advice_untold={"pose": _NEARBY, "translation": _BOTH, "moves": f"{_BOTH} {_RULER}", "pose moves": _BOTH},
        wording=_FROM + r"what is the distance between .+\(in meters\)",
    ),
    QuestionType(
        "object_size_estimation",
        Number("cm"),
        advice=f"{_ALL_SIDES} {_RULER}",
        advice_untold={"pose": _ALL_SIDES, "translation": _WHOLE, "moves": f"{_WHOLE} {_RULER}", "pose moves": _WHOLE},
        wording=r"what is the length of the longest dimension .+ centimeters",
    ),
    QuestionType(
        "room_size_estimation",
        Number("m²"),
        advice=f"{_WALLS} {_RECTANGLE}",
        advice_untold={"extent": _WALLS, "moves": f"{_SHOWN_WALLS} {_RECTANGLE}", "extent moves": _SHOWN_WALLS},
        wording=r"what is the size of (this|the) room \(?in square meters",
        told_by_extent=True,
    ),
    QuestionType(
        "object_rel_distance",
        LETTER_KIND,
        advice="Find every object that the question names and note where it is before you compare distances.",
        wording=_FROM + r"which of these objects .+ is the closest to ",
    ),
    *(
        QuestionType(f"{_TASK}_{level}", LETTER_KIND, task=_TASK, advice=_DIRECTION, wording=_FACING + sides)
        for level, sides in (
            ("easy", "the left or the right of "),
            ("medium", "my left, right, or back"),
            ("hard", "my front-left, front-right, back-left"),
        )
    ),
    QuestionType(
        "route_planning",
        LETTER_KIND,
        advice="Find every place that the question names and note where it is on the floor plan. Then follow the "
        "route step by step and keep track of which way you face.",
        wording=r"you are a robot beginning at .+\[please fill in\]",
    ),
    QuestionType(
        "obj_appearance_order",
        LETTER_KIND,
        advice="Note what each view shows, in the order of the views.",
        wording="what will be the first-time appearance order of ",
    ),
)
