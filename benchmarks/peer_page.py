def page(rows):
    return ""
