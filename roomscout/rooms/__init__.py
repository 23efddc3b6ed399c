"""Procedural furnished rooms: scans, and VSI-Bench questions about them with exact answers."""

from roomscout.rooms.questions import QUESTIONS_PER_TYPE, room_questions
from roomscout.rooms.room import Room, make_room
from roomscout.rooms.scan import ScanStyle
from roomscout.rooms.writer import QUESTIONS_FILE, kept_rooms, write_rooms

__all__ = [
    "QUESTIONS_FILE",
    "QUESTIONS_PER_TYPE",
    "Room",
    "ScanStyle",
    "kept_rooms",
    "make_room",
    "room_questions",
    "write_rooms",
]
