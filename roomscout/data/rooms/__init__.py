"""Procedural furnished rooms: scans, and VSI-Bench questions about them with exact answers."""

from roomscout.data.rooms.geometry import OrientedBox
from roomscout.data.rooms.questions import QUESTIONS_PER_TYPE, room_questions, wordings
from roomscout.data.rooms.room import Room, RoomObject, make_room
from roomscout.data.rooms.scan import RoomMesh, ScanStyle
from roomscout.data.rooms.writer import QUESTIONS_FILE, kept_rooms, write_ply, write_rooms

__all__ = [
    "QUESTIONS_FILE",
    "QUESTIONS_PER_TYPE",
    "OrientedBox",
    "Room",
    "RoomMesh",
    "RoomObject",
    "ScanStyle",
    "kept_rooms",
    "make_room",
    "room_questions",
    "wordings",
    "write_ply",
    "write_rooms",
]
