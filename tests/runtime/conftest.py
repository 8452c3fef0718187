from hypothesis import settings

# Times on a busy machine say nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
