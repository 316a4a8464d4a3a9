"""One line at the end of a benchmark: its ratios beside the bounds that were set, and whether they are met. `held(name, (what, value, "<=", bound), ...)`."""


def held(name, *rows):
    """Returns whether all are; a value that is None was not measured."""
    texts, missed, unknown = [], 0, 0
    for what, value, relation, bound in rows:
        if value is None or value != value:
            texts.append(f"{what} not measured")
            unknown += 1
            continue
        good = value <= bound if relation == "<=" else value >= bound
        missed += not good
        texts.append(f"{what} {value:.3g} ({relation} {bound:.3g}{'' if good else ', MISSED'})")
    print(f"BOUNDS {name}: {'met' if not missed and not unknown else f'{missed} missed, {unknown} not measured'}: {'; '.join(texts)}", flush=True)
    return not missed
