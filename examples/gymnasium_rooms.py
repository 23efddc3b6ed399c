"""Four rooms without end as one Gymnasium environment; a scripted policy looks around and answers.

pip install "roomscout[train]"
python examples/gymnasium_rooms.py
"""

from roomscout.training.faces.gymnasium import RoomGymVector

TURN = 'I look further. {"rotation_angle_degrees": 90, "answer": null, "done": false}'
DONE = 'I saw all of the room. {"answer": "2", "done": true}'

rooms = RoomGymVector(4, endless=True, question_types=["object_counting"], model="embedded", renderer="raycast")
observations, infos = rooms.reset(seed=1)
print("views", observations["image"].shape, "questions", list(infos["question"]))
total = 0.0
episodes = 0
for turn in range(3):
    replies = [DONE if turn == 2 else TURN] * rooms.num_envs  # a model's replies to observations["text"] and the views
    observations, rewards, terminated, truncated, infos = rooms.step(replies)
    total += rewards.sum()
    episodes += terminated.sum()
print(f"{episodes} episodes, mean score {total / episodes:.2f}")
rooms.close()
