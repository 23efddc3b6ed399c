"""The words for yes and no that people, spreadsheets and models write."""

YES_WORDS = "yes true ja wahr waar oui vrai sí si verdadero sì vero sim verdadeiro"
NO_WORDS = "no false nein falsch nee onwaar non faux falso não nao"
YES_OR_NO = {word: word in YES_WORDS.split() for word in f"{YES_WORDS} {NO_WORDS}".split()}
"""Whether a word in lower case says yes: English, German, Dutch, French, Spanish, Italian and Portuguese, with what
their spreadsheets write for true and false, and without the accents that people leave out."""
