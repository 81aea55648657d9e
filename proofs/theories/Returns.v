(** A declared range of returns: what follows a state where somebody can be is bounded, so products e^{beta r} Z may be cut.
    Here for the bounds on values; the cuts of the gap certificate are on paper. *)
Require Import Reals Lra Lia List Arith.
From EBPI Require Import Sums Model.
Open Scope R_scope.

Section Returns.
Variable M : mdp.
Variable p : nat -> nat -> R.
Variable rew : nat -> nat -> nat -> nat -> R.
Variable beta : R.
Variables H s1 : nat.                  (* horizon, first state *)
Variables lo hi : nat -> R.            (* of the rewards at each step *)
Variables Rlo Rhi : R.                 (* declared *)
Hypothesis Hp : kernel M p.
Hypothesis Hb : beta <> 0.
Hypothesis Hrew : forall n s a j, lo n <= rew n s a j <= hi n.
Notation e := (weight rew beta).

Definition can (n s a j : nat) : Prop := (a <= amax M)%nat /\ (j < K M (row M n s a))%nat /\ 0 < p (row M n s a) j.

(** What can be paid from a state on, and where one can be after having been paid how much. *)
Inductive pays : nat -> nat -> R -> Prop :=
| pays_end s : pays 0 s 0
| pays_step n s a j x : can n s a j -> pays n (nxt M n s a j) x -> pays (S n) s (rew n s a j + x).
Inductive reach : nat -> nat -> R -> Prop :=
| reach_start : reach H s1 0
| reach_step n s a j x : reach (S n) s x -> can n s a j -> reach n (nxt M n s a j) (x + rew n s a j).

Hypothesis declared : forall x, pays H s1 x -> Rlo <= x <= Rhi.

Lemma reach_pays n s x : reach n s x -> forall y, pays n s y -> pays H s1 (x + y).
Proof.
  induction 1 as [|n s a j x R IH C]; intros y P; [rewrite Rplus_0_l; auto|].
  rewrite Rplus_assoc. apply IH. apply pays_step; auto.
Qed.

Lemma reach_range n s x : reach n s x -> rsum H lo - rsum n lo <= x <= rsum H hi - rsum n hi.
Proof.
  induction 1 as [|n s a j x R IH C]; [lra|]. cbn [rsum] in IH. pose proof (Hrew n s a j). lra.
Qed.

Definition least (n : nat) : R := Rlo - (rsum H hi - rsum n hi).
Definition most (n : nat) : R := Rhi - (rsum H lo - rsum n lo).

Lemma future n s x y : reach n s x -> pays n s y -> least n <= y <= most n.
Proof.
  intros R P. pose proof (declared _ (reach_pays n s x R y P)). pose proof (reach_range n s x R). unfold least, most. lra.
Qed.

Lemma mean_support k q f l u : simplex k q -> (forall j, (j < k)%nat -> 0 < q j -> l <= f j <= u) -> l <= mean k q f <= u.
Proof.
  intros [Pq S] L. rewrite <- (mean_const k q l S), <- (mean_const k q u S).
  split; apply rsum_le; intros j Lj; (destruct (Pq j Lj) as [P|P]; [|rewrite <- P; lra]);
    destruct (L j Lj P); apply Rmult_le_compat_l; lra.
Qed.

Lemma mean_le_support k q f g : (forall j, (j < k)%nat -> 0 <= q j) ->
  (forall j, (j < k)%nat -> 0 < q j -> f j <= g j) -> mean k q f <= mean k q g.
Proof.
  intros Pq L. apply rsum_le. intros j Lj. destruct (Pq j Lj) as [P|P]; [|rewrite <- P; lra].
  apply Rmult_le_compat_l; [lra|auto].
Qed.

Definition cut_lo (A B : R) : R := Rmin (exp (beta * A)) (exp (beta * B)).
Definition cut_hi (A B : R) : R := Rmax (exp (beta * A)) (exp (beta * B)).

Lemma cut_scaled r A B : exp (beta * r) * cut_lo (A - r) (B - r) = cut_lo A B /\ exp (beta * r) * cut_hi (A - r) (B - r) = cut_hi A B.
Proof.
  assert (E : forall x, exp (beta * r) * exp (beta * (x - r)) = exp (beta * x)) by (intros; rewrite <- exp_plus; f_equal; ring).
  pose proof (exp_pos (beta * r)) as P. unfold cut_lo, cut_hi, Rmin, Rmax. rewrite <- (E A), <- (E B).
  destruct (Rle_dec _ _) as [L|L]; destruct (Rle_dec (exp (beta * r) * _) _) as [L'|L']; split; try reflexivity; nra.
Qed.

Lemma Zpi_between pi : legal M pi -> forall n s A B,
  (forall y, pays n s y -> A <= y <= B) -> cut_lo A B <= Zpi M p e pi n s <= cut_hi A B.
Proof.
  intros Lg. induction n as [|n IH]; intros s A B HP.
  - simpl. pose proof (HP 0 (pays_end s)) as [L1 L2]. unfold cut_lo, cut_hi. rewrite <- exp_0.
    destruct (Rlt_dec 0 beta) as [S|S].
    + split; [apply Rle_trans with (1 := Rmin_l _ _)|apply Rle_trans with (2 := Rmax_r _ _)]; apply exp_mono; nra.
    + split; [apply Rle_trans with (1 := Rmin_r _ _)|apply Rle_trans with (2 := Rmax_l _ _)]; apply exp_mono; nra.
  - cbn [Zpi]. apply mean_support; [apply Hp|]. intros j Lj Pj. set (a := pi n s) in *.
    assert (C : can n s a j) by (repeat split; auto; apply Lg).
    specialize (IH (nxt M n s a j) (A - rew n s a j) (B - rew n s a j)).
    assert (G : forall y, pays n (nxt M n s a j) y -> A - rew n s a j <= y <= B - rew n s a j).
    { intros y P. pose proof (HP _ (pays_step n s a j y C P)). lra. }
    destruct (IH G) as [I1 I2]. destruct (cut_scaled (rew n s a j) A B) as [<- <-]. pose proof (exp_pos (beta * rew n s a j)).
    change (e n s a j) with (exp (beta * rew n s a j)). split; apply Rmult_le_compat_l; lra.
Qed.

(** Every product of a slot that can happen, in a state where somebody can be, lies between the cuts. *)
Lemma product_cut pi n s a j x : legal M pi -> reach (S n) s x -> can n s a j ->
  cut_lo (least (S n)) (most (S n)) <= e n s a j * Zpi M p e pi n (nxt M n s a j) <= cut_hi (least (S n)) (most (S n)).
Proof.
  intros Lg R C. set (A := least (S n)). set (B := most (S n)).
  assert (G : forall y, pays n (nxt M n s a j) y -> A - rew n s a j <= y <= B - rew n s a j).
  { intros y P. pose proof (future _ _ _ _ R (pays_step n s a j y C P)). unfold A, B. lra. }
  destruct (Zpi_between pi Lg n _ _ _ G) as [I1 I2]. destruct (cut_scaled (rew n s a j) A B) as [<- <-].
  pose proof (exp_pos (beta * rew n s a j)). change (e n s a j) with (exp (beta * rew n s a j)). split; apply Rmult_le_compat_l; lra.
Qed.

(** What is checked: as [values_ok] in Gap.v, with products cut. *)
Variables up_ok lo_ok : nat -> (nat -> R) -> R -> Prop.
Hypothesis Hup : forall i f u, up_ok i f u -> mean (K M i) (p i) f <= u.
Hypothesis Hlo : forall i f u, lo_ok i f u -> u <= mean (K M i) (p i) f.
Variables em ep : nat -> nat -> nat -> nat -> R.
Hypothesis He : forall n s a j, 0 < em n s a j /\ em n s a j <= e n s a j <= ep n s a j.
Variable pi : nat -> nat -> nat.
Hypothesis Hpi : legal M pi.
Variable occ : nat -> nat -> Prop.
Variables Zo Zp : nat -> nat -> R.

Definition cut_upper (n s a : nat) (Z : nat -> nat -> R) (u : R) : Prop :=
  up_ok (row M n s a) (fun j => Rmin (ep n s a j * Z n (nxt M n s a j)) (cut_hi (least (S n)) (most (S n)))) u.
Definition cut_lower (n s a : nat) (Z : nat -> nat -> R) (u : R) : Prop :=
  lo_ok (row M n s a) (fun j => Rmax (em n s a j * Z n (nxt M n s a j)) (cut_lo (least (S n)) (most (S n)))) u.

Definition cut_values_ok (n s : nat) : Prop :=
  (forall a j, (a <= amax M)%nat -> (j < K M (row M n s a))%nat -> occ n (nxt M n s a j)) /\ 0 < Zo (S n) s /\ 0 < Zp (S n) s /\
  if positive beta then (forall a, (a <= amax M)%nat -> cut_upper n s a Zo (Zo (S n) s)) /\ cut_lower n s (pi n s) Zp (Zp (S n) s)
  else (forall a, (a <= amax M)%nat -> cut_lower n s a Zo (Zo (S n) s)) /\ cut_upper n s (pi n s) Zp (Zp (S n) s).

Lemma cut_upper_sound n s a Z pi' u x : legal M pi' -> (a <= amax M)%nat -> reach (S n) s x -> cut_upper n s a Z u ->
  (forall j, can n s a j -> Zpi M p e pi' n (nxt M n s a j) <= Z n (nxt M n s a j)) -> U M p e n s a (Zpi M p e pi' n) <= u.
Proof.
  intros Lg La R Up L. apply Rle_trans with (2 := Hup _ _ _ Up). apply mean_le_support; [apply Hp|]. intros j Lj Pj.
  assert (C : can n s a j) by (repeat split; auto). destruct (He n s a j) as [E0 E1].
  pose proof (Zpi_pos M p e Hp (weight_pos rew beta) pi' n (nxt M n s a j)).
  apply Rmin_glb; [apply Rmult_le_compat; try lra; auto|]. apply (product_cut pi' n s a j x); auto.
Qed.

Lemma cut_lower_sound n s a Z pi' u x : legal M pi' -> (a <= amax M)%nat -> reach (S n) s x -> cut_lower n s a Z u ->
  (forall j, can n s a j -> 0 < Z n (nxt M n s a j) <= Zpi M p e pi' n (nxt M n s a j)) -> u <= U M p e n s a (Zpi M p e pi' n).
Proof.
  intros Lg La R Lo L. apply Rle_trans with (1 := Hlo _ _ _ Lo). apply mean_le_support; [apply Hp|]. intros j Lj Pj.
  assert (C : can n s a j) by (repeat split; auto). destruct (He n s a j) as [E0 E1]. specialize (L j C).
  apply Rmax_lub; [apply Rmult_le_compat; lra|]. apply (product_cut pi' n s a j x); auto.
Qed.

Theorem cut_values_sound : (forall s, Zo 0 s = 1 /\ Zp 0 s = 1) ->
  (forall n s, (n < H)%nat -> occ (S n) s -> cut_values_ok n s) -> forall n s x, (n <= H)%nat -> occ n s -> reach n s x ->
  0 < Zo n s /\ 0 < Zp n s /\
  if positive beta then Zopt M p e true n s <= Zo n s /\ Zp n s <= Zpi M p e pi n s
  else Zo n s <= Zopt M p e false n s /\ Zpi M p e pi n s <= Zp n s.
Proof.
  intros S0 HV. induction n as [|n IH]; intros s x L O R.
  - destruct (S0 s) as [-> ->]. simpl. destruct (positive beta); lra.
  - destruct (HV n s ltac:(lia) O) as (I & P1 & P2 & C). split; [auto|]. split; [auto|].
    assert (After : forall a j, can n s a j -> reach n (nxt M n s a j) (x + rew n s a j) /\ occ n (nxt M n s a j)).
    { intros a j Cj. split; [apply reach_step; auto|]. destruct Cj as (La & Lj & _). apply I; auto. }
    assert (Ind : forall a j, can n s a j -> _) by (intros a j Cj; destruct (After a j Cj) as [R' O']; exact (IH _ _ ltac:(lia) O' R')).
    destruct (optimum_attained M p e (positive beta)) as [Lg Att].
    destruct (Zopt_action M p e (positive beta) n s) as (a & La & Ea).
    assert (Eu : U M p e n s a (Zopt M p e (positive beta) n) = U M p e n s a (Zpi M p e (greedy M p e (positive beta)) n)).
    { unfold U. apply mean_ext. intros j _. rewrite Att. reflexivity. }
    destruct (positive beta); rewrite Ea, Eu; destruct C as [C1 C2]; split.
    + apply (cut_upper_sound n s a Zo _ _ x); auto. intros j Cj. rewrite Att. apply (Ind a j Cj).
    + apply (cut_lower_sound n s (pi n s) Zp pi _ x); auto. intros j Cj. destruct (Ind (pi n s) j Cj) as (_ & A & _ & B). lra.
    + apply (cut_lower_sound n s a Zo _ _ x); auto. intros j Cj. rewrite Att. destruct (Ind a j Cj) as (A & _ & B & _). lra.
    + apply (cut_upper_sound n s (pi n s) Zp pi _ x); auto. intros j Cj. apply (Ind (pi n s) j Cj).
Qed.

(** In values. *)
Theorem return_range_values : (forall s, Zo 0 s = 1 /\ Zp 0 s = 1) ->
  (forall n s, (n < H)%nat -> occ (S n) s -> cut_values_ok n s) -> occ H s1 ->
  ln (Zp H s1) / beta <= V M p rew beta (det pi) H s1 /\ Vopt M p rew beta H s1 <= ln (Zo H s1) / beta.
Proof.
  intros S0 HV O. destruct (cut_values_sound S0 HV H s1 0 (le_n H) O reach_start) as (P1 & P2 & VV).
  rewrite V_det by auto. unfold Vopt, positive in *.
  pose proof (Zpi_pos M p e Hp (weight_pos rew beta) pi H s1) as Q1.
  assert (Q2 := fun b => Zopt_pos M p e Hp (weight_pos rew beta) b H s1).
  unfold Rdiv. destruct (Rlt_dec 0 beta) as [B|B]; destruct VV as [V1 V2].
  - assert (0 <= / beta) by (left; apply Rinv_0_lt_compat; auto). split; apply Rmult_le_compat_r; auto; apply ln_mono; auto.
  - assert (/ beta < 0) by (apply Rinv_lt_0_compat; lra).
    pose proof (ln_mono _ _ P1 V1). pose proof (ln_mono _ _ Q1 V2). split; nra.
Qed.
End Returns.
